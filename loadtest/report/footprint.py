"""What a backend costs beside its speed: memory, and the time to its first answer. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from loadtest.explained import Start
from loadtest.report.numbers import MISSING, rate, seconds, size
from loadtest.resources.sampler import SERVER
from loadtest.results import BackendSummary, Point, Rank, Summary

STATES = ("as found", "not cached", "cached")
"""Of the page cache before a start."""


@dataclass(frozen=True)
class FootprintRow:
    """One backend as text; ``first_answers`` are by ``STATES``."""

    backend: str
    inferences: str
    resident: str
    proportional: str
    ready: str
    first_answers: tuple[str, ...]


def footprints(summary: Summary) -> tuple[FootprintRow, ...]:
    """Of every backend that was measured; ranked ones first."""
    ranks = {row.backend: row for row in summary.ranking.rows}
    order = list(ranks)
    measured = [backend for backend in summary.backends if backend.points]
    measured.sort(key=lambda b: order.index(b.label) if b.label in ranks else len(order))
    return tuple(_row(backend, ranks.get(backend.label)) for backend in measured)


def memory_of(backend: BackendSummary, level: float | None) -> int | None:
    """Largest resident size at the point nearest to ``level``; of any point without a level."""
    point = _nearest(backend.points, level)
    return point.server_rss_bytes if point else None


def cold_start(starts: Sequence[Start], state: str) -> str:
    """Median time to the first right answer over the starts in one state of the page cache."""
    own = [start for start in starts if start.state == state]
    known = [start.first_answer_s for start in own if start.first_answer_s is not None]
    if not known:
        return "no right answer" if own else MISSING
    of = f" ({len(known)} starts)" if len(known) > 1 else ""
    return f"{median(known):,.2f} s{of}"


def _row(backend: BackendSummary, rank: Rank | None) -> FootprintRow:
    level = rank.level if rank else None
    return FootprintRow(
        backend=backend.label,
        inferences=rate(rank.inferences_per_s if rank else None),
        resident=size(memory_of(backend, level)),
        proportional=size(_proportional(_nearest(backend.points, level))),
        ready=seconds(backend.start_s),
        first_answers=tuple(cold_start(backend.starts, state) for state in STATES),
    )


def _nearest(points: Sequence[Point], level: float | None) -> Point | None:
    if level is None:
        return max(points, key=lambda p: p.server_rss_bytes or 0, default=None)
    return min(points, key=lambda p: abs(p.level - level), default=None)


def _proportional(point: Point | None) -> int | None:
    role = point.resources.roles.get(SERVER) if point and point.resources else None
    return role.pss_peak_bytes if role else None
