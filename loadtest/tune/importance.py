"""Which knobs mattered, from nothing but what was tried. Pure.

Shares of variance (fANOVA, PED-ANOVA) say how a knob moves the average setting; whoever deploys one
asks what a wrong value costs when the rest is right. So each value stands for the best setting that
has it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Literal, NamedTuple

from loadtest.slo.search import PRECISION
from loadtest.tune.outcome import Tried
from loadtest.tune.space import Point, Space

Mattered = Literal["mattered", "did not matter", "not clear"]


@dataclass(frozen=True)
class Effect:
    """One knob.

    Attributes:
        best_rps: by value, of those that were tried: the most of any setting with it.
        loss: what the worst of these values loses against the best one, 0 to 1.
        verdict: ``did not matter`` where every value that was tried has a setting that is as good
            as the best within the search's precision; estimates of settings that were left early
            count. ``mattered`` where two settings that differ in this knob alone, and were both
            searched to the end, differ by more than that.
    """

    knob: str
    best_rps: Mapping[str, float]
    loss: float
    verdict: Mattered


def effects_of(space: Space, tried: Sequence[Tried]) -> tuple[Effect, ...]:
    """Of every axis, the largest loss first; settings that failed tell nothing."""
    known = [
        _Known(one.point, one.outcome.estimate_rps, one.outcome.verdict != "pruned")
        for one in tried
        if one.outcome is not None and one.outcome.estimate_rps is not None
    ]
    found = [_effect(space, index, known) for index in range(len(space.axes))]
    return tuple(sorted(found, key=lambda effect: -effect.loss))


class _Known(NamedTuple):
    point: Point
    rate_rps: float
    is_measured: bool


def _effect(space: Space, index: int, known: Sequence[_Known]) -> Effect:
    axis = space.axes[index]
    best: dict[str, float] = {}
    for rank, value in enumerate(axis.values):
        rates = [one.rate_rps for one in known if one.point[index] == rank]
        if rates:
            best[value] = max(rates)
    most = max(best.values(), default=0.0)
    loss = 1 - min(best.values()) / most if most else 0.0
    if len(best) > 1 and most and loss < 1 - 1 / PRECISION:
        return Effect(axis.knob, best, loss, "did not matter")
    measured = [one for one in known if one.is_measured]
    pairs = (
        sorted((one.rate_rps, other.rate_rps))
        for one, other in combinations(measured, 2)
        if _differ_only_in(index, one.point, other.point)
    )
    mattered = any(low * PRECISION < high for low, high in pairs)
    return Effect(axis.knob, best, loss, "mattered" if mattered else "not clear")


def _differ_only_in(index: int, one: Point, other: Point) -> bool:
    return [i for i, (a, b) in enumerate(zip(one, other, strict=True)) if a != b] == [index]
