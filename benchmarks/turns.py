"""Contenders that take turns under wrk, so that a drifting machine meets all alike."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cases import Case, Change
from benchmarks.load import CLIENT_CPU, say
from benchmarks.peers import PeerResult, Target, Unavailable, wrk
from serving.models.repository import Model


@dataclass(frozen=True)
class Plan:
    """How long everything is measured.

    Attributes:
        folder: scratch; every case gets a folder in it.
        turns: per contender, of ``seconds`` each.
        soak_s: one unbroken run at full load.
    """

    folder: Path
    turns: int
    seconds: float
    soak_s: float

    def case(self, name: str, model: Model, *changes: Change) -> Case:
        return Case.of(model, self.folder / name, *changes)

    def in_turns(
        self, what: str, targets: Mapping[str, Target], users: int
    ) -> dict[str, list[PeerResult]]:
        """What wrk says of each contender, a result per turn; the medians are printed.

        Raises:
            Unavailable: as ``loaded`` says.
        """
        found: dict[str, list[PeerResult]] = defaultdict(list)
        for turn in range(self.turns):
            for name, target in targets.items():
                say(f"{what}, {users} at once, turn {turn + 1}: {name}")
                found[name].append(loaded(target, users, self.seconds))
        for name, results in found.items():
            print(_line(what, users, name, results))
        return found


def loaded(target: Target, users: int, seconds: float) -> PeerResult:
    """What wrk says of one run.

    Raises:
        Unavailable: requests failed, so the figures are not those of right answers.
    """
    result = wrk(target, users, seconds, CLIENT_CPU)
    if result.errors:
        raise Unavailable(f"{result.errors} requests to {target.infer_url} failed")
    return result


def ratios(
    ours: Sequence[PeerResult], theirs: Sequence[PeerResult], field: str = "requests_per_s"
) -> list[float]:
    """One figure over the other, turn by turn."""
    return [getattr(a, field) / getattr(b, field) for a, b in zip(ours, theirs, strict=True)]


def _line(what: str, users: int, name: str, results: Sequence[PeerResult]) -> str:
    rate, p50, p99 = (
        statistics.median(getattr(result, field) for result in results)
        for field in ("requests_per_s", "p50_ms", "p99_ms")
    )
    return f"{what}, {users} at once: {name:30} {rate:10,.1f}/s  p50 {p50:.3f} ms  p99 {p99:.3f} ms"
