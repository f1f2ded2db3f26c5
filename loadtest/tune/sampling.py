"""Which setting to try next: Optuna's Gaussian process over the settings that are left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import GPSampler
from optuna.study import Study
from optuna.trial import FrozenTrial, TrialState, create_trial

from loadtest.tune.space import Point, Space
from serving.knobs import Axis

if TYPE_CHECKING:
    from optuna._gp.acqf import BaseAcquisitionFunc

STARTUP = 8
"""Settings spread over the space before the model is asked. Fewer find less where half of the
space cannot meet the objectives; with more too little is left for the model."""
_SPREAD = 64
"""Settings of which the farthest from all others is taken."""
_POOL = 2_000
"""Settings among which the acquisition is maximised where not all can be listed."""
_CENTRES = 3


class SettingSampler(GPSampler):
    """Maximises the expected improvement over the settings of a ``Space`` that are left.

    Optuna's own maximisation knows neither what makes no sense nor what is measured already. Until
    ``STARTUP`` settings are known, the one farthest from all others is taken (maximin design,
    Johnson, Moore and Ylvisaker 1990).
    """

    def __init__(self, space: Space, seed: int) -> None:
        super().__init__(seed=seed, n_startup_trials=STARTUP, warn_independent_sampling=False)
        self._space, self._random = space, Random(seed)
        self._left: Sequence[Point] = ()

    def infer_relative_search_space(
        self,
        study: Study,  # noqa: ARG002
        trial: FrozenTrial,  # noqa: ARG002
    ) -> dict[str, BaseDistribution]:
        return distributions(self._space)

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        told = study.get_trials(deepcopy=False)
        points = {point for one in told if (point := point_of(self._space, one)) is not None}
        known = [one for one in told if one.state == TrialState.COMPLETE]
        ordered = sorted(known, key=lambda one: one.value or 0.0, reverse=True)
        best = [point_of(self._space, one) for one in ordered[:_CENTRES]]
        self._left = self._pool(points, [one for one in best if one is not None])
        if not self._left:
            # Someone else has just begun the last one; whoever asked finds that it is taken.
            return parameters(self._space, self._space.default)
        if len(known) < STARTUP:
            return parameters(self._space, self._farthest(points))
        return super().sample_relative(study, trial, search_space)

    def _optimize_acqf(
        self,
        acqf: BaseAcquisitionFunc,
        best_params: npt.NDArray[np.float64] | None,  # noqa: ARG002
    ) -> npt.NDArray[np.float64]:
        """The best of the list, where Optuna's would search locally. It is meant to be replaced."""
        left = [parameters(self._space, point) for point in self._left]
        rows = acqf.search_space.get_normalized_params([create_trial(value=0.0)] * len(left), left)
        found: npt.NDArray[np.float64] = rows[int(np.argmax(acqf.eval_acqf_no_grad(rows)))]
        return found

    def _pool(self, taken: set[Point], best: Sequence[Point]) -> Sequence[Point]:
        everything: Iterable[Point] | None = self._space.members
        if everything is None:
            near = (point for centre in best for point in self._space.near(centre))
            drawn = self._space.draw(self._random, 50 * _POOL)
            everything = dict.fromkeys([*near, *islice(drawn, _POOL)])
        return [point for point in everything if point not in taken]

    def _farthest(self, taken: set[Point]) -> Point:
        drawn = self._random.sample(list(self._left), min(_SPREAD, len(self._left)))
        return max(drawn, key=lambda point: min((self._apart(point, t) for t in taken), default=0))

    def _apart(self, one: Point, other: Point) -> float:
        steps = zip(one, other, self._space.axes, strict=True)
        return sum(abs(a - b) / max(1, len(axis.values) - 1) for a, b, axis in steps)


def distributions(space: Space) -> dict[str, BaseDistribution]:
    """Ranks, for words without an order their number."""
    return {axis.knob: _distribution(axis) for axis in space.axes}


def _distribution(axis: Axis) -> BaseDistribution:
    ordered = len(axis.values) == 2 or any(value.isdecimal() for value in axis.values)
    if ordered:
        return IntDistribution(0, len(axis.values) - 1)
    return CategoricalDistribution(range(len(axis.values)))


def parameters(space: Space, point: Point) -> dict[str, int]:
    return {axis.knob: rank for axis, rank in zip(space.axes, point, strict=True)}


def point_of(space: Space, trial: FrozenTrial) -> Point | None:
    """``None`` while it has no parameters yet."""
    found: Mapping[str, int] = trial.params
    if any(axis.knob not in found for axis in space.axes):
        return None
    return tuple(int(found[axis.knob]) for axis in space.axes)
