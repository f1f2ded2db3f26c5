"""Which settings are worth a choice: the Pareto front, and its knee. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

CELL = 1.05
"""Costs within so many times are one: no repeat of a measurement agrees better. Without that nearly
every setting would be on the front for some millionth of a cost (epsilon-dominance on a grid,
Laumanns, Thiele, Deb and Zitzler 2002)."""

COSTS = ("p99_ms", "memory_bytes", "joules")


@dataclass(frozen=True)
class Candidate:
    """A setting whose goodput is known; its costs at that rate, ``None`` where not measured."""

    number: int
    goodput_rps: float
    p99_ms: float | None = None
    memory_bytes: float | None = None
    joules: float | None = None

    def cost(self, name: str) -> float:
        found: float | None = getattr(self, name)
        assert found is not None
        return found


def shared_costs(candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Those that were measured of all: by what is not known of one, none can be compared."""
    return tuple(
        name for name in COSTS if all(getattr(one, name) is not None for one in candidates)
    )


def pareto_front(candidates: Sequence[Candidate]) -> tuple[Candidate, ...]:
    """Those that no other beats in goodput without costing more; the most goodput first."""
    costs = shared_costs(candidates)
    front = [
        one
        for one in candidates
        if not any(_dominates(other, one, costs) for other in candidates if other is not one)
    ]
    return tuple(sorted(front, key=lambda one: -one.goodput_rps))


def knee(front: Sequence[Candidate]) -> Candidate | None:
    """Where more goodput begins to cost more than it is worth; ``None`` below three settings.

    Each measure is put on a scale from 0, its worst on the front, to 1, its best, by logarithms: a
    ratio counts alike anywhere. The knee is farthest from the plane through the best of each
    measure, which is where these add up to most (Das, *On characterizing the "knee" of the Pareto
    curve*, Structural Optimization 18, 1999; in two dimensions that is Kneedle's distance from the
    chord, Satopää et al. 2011).
    """
    if len(front) < 3:
        return None
    scales = [_scaled([one.goodput_rps for one in front])]
    for name in shared_costs(front):
        scales.append(_scaled([1 / max(one.cost(name), 1e-12) for one in front]))
    sums = [sum(values) for values in zip(*scales, strict=True)]
    return front[sums.index(max(sums))]


def _dominates(one: Candidate, other: Candidate, costs: Sequence[str]) -> bool:
    ours = (one.goodput_rps, *(-_cell(one.cost(name)) for name in costs))
    theirs = (other.goodput_rps, *(-_cell(other.cost(name)) for name in costs))
    if ours == theirs:
        return one.number < other.number
    return all(a >= b for a, b in zip(ours, theirs, strict=True))


def _cell(cost: float) -> int:
    return math.floor(math.log(max(cost, 1e-12), CELL))


def _scaled(values: Sequence[float]) -> list[float]:
    """From 0 to 1; where they hardly differ all are 1, so that noise is not blown up."""
    logs = [math.log(value) for value in values]
    low, high = min(logs), max(logs)
    if high - low < math.log(CELL):
        return [1.0] * len(logs)
    return [(value - low) / (high - low) for value in logs]
