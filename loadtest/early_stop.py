"""Whether a window can still meet what was asked of it, while it runs. Pure.

Of n requests due in the window, the upper bound on a percentile is the r-th smallest response time
(``loadtest.confidence``), so it keeps a limit only if at most n - r requests take longer. Counted
against those are

- requests that took longer than the limit, were given up after it or could not be sent,
- requests that are still unanswered though they were due longer ago than the limit.

Of the latter some may yet fail and so be no part of the percentile, but no more than may fail in
the whole window. When the count is above n - r and that number together, the objective cannot be
met any more, whatever follows. Nothing is estimated; n is known, since the schedule is.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from loadtest.confidence import bounding_ranks, sample_floor
from loadtest.engine.base import OUTCOME, Records
from loadtest.results import IN_PERCENTILES, NEVER_SENT
from loadtest.schedule import Times
from loadtest.trial import StopRule

_NEVER_NS = 1 << 62
_NOT_SENT, _DROPPED = OUTCOME["not_sent"], OUTCOME["dropped"]
_BESIDE = [number for name, number in OUTCOME.items() if name not in (*IN_PERCENTILES, *NEVER_SENT)]
"""Failures: they are no part of a percentile."""


def allowed_over(count: int, quantile: float) -> int:
    """How many of ``count`` requests may take longer than the limit for the upper bound to keep it.

    That is what ``loadtest.objective`` counts by. All of them where ``count`` gives no bound at
    all: then the window says nothing, and so neither is it lost.
    """
    if count < sample_floor(quantile):
        return count
    _, high = bounding_ranks(count, quantile)
    return count if high is None else count - high


def due_between(arrivals: Iterable[Times], start_ns: int, end_ns: int) -> Times:
    """The part of an ascending schedule in [start, end)."""
    kept = [np.zeros(0, np.int64)]
    for chunk in arrivals:
        first, last = np.searchsorted(chunk, (start_ns, end_ns))
        kept.append(chunk[first:last])
        if last < len(chunk):
            break
    return np.concatenate(kept)


class Outlook:
    """The requests due in one window, and what has become of them."""

    def __init__(self, rule: StopRule, due_ns: Times) -> None:
        """``due_ns`` are all of the window's, ascending, on the clock of the records."""
        self._due_ns = due_ns
        self._ended = np.zeros(len(due_ns), np.int32)
        self._limits = rule.percentiles
        self._allowed = [allowed_over(len(due_ns), quantile) for quantile, _ in self._limits]
        self._may_fail = int(rule.failures * len(due_ns))
        self._over = [0] * len(self._limits)
        self._failed = 0

    def add(self, records: Records) -> None:
        """Requests that ended; those of no concern to the window are left out."""
        places = np.searchsorted(self._due_ns, records["due"])
        inside = places < len(self._due_ns)
        inside[inside] = self._due_ns[places[inside]] == records["due"][inside]
        # Equal moments share a place, which makes no difference to the sum up to a moment.
        np.add.at(self._ended, places[inside], 1)
        own = records[inside & (records["outcome"] != _DROPPED)]
        failed = np.isin(own["outcome"], _BESIDE)
        self._failed += int(failed.sum())
        taken_ns = np.where(own["outcome"] == _NOT_SENT, _NEVER_NS, own["done"] - own["due"])
        for index, (_, limit_ns) in enumerate(self._limits):
            self._over[index] += int((taken_ns[~failed] > limit_ns).sum())

    def lost(self, now_ns: int) -> str | None:
        """Why an objective cannot be met any more; ``None`` while it can.

        All that ended before ``now_ns`` must have been added.
        """
        if self._failed > self._may_fail:
            return (
                f"{self._failed} of {len(self._due_ns)} planned requests failed, "
                f"{self._may_fail} may"
            )
        for (quantile, limit_ns), over, allowed in zip(
            self._limits, self._over, self._allowed, strict=True
        ):
            waiting = self._unanswered(now_ns - limit_ns)
            if over + waiting > allowed + self._may_fail:
                return (
                    f"{over} requests took longer than {limit_ns / 1e6:g} ms and {waiting} wait "
                    f"longer; p{quantile * 100:g} allows {allowed} of {len(self._due_ns)} planned"
                )
        return None

    def backlog(self, now_ns: int) -> bool:
        """Whether more requests wait for longer than a limit than were due within the last one.

        Where requests are answered in their order, the oldest has waited for twice the limit then.
        """
        return any(
            self._unanswered(now_ns - limit_ns) > self._due(now_ns) - self._due(now_ns - limit_ns)
            for _, limit_ns in self._limits
        )

    def _due(self, until_ns: int) -> int:
        return int(np.searchsorted(self._due_ns, until_ns, side="right"))

    def _unanswered(self, until_ns: int) -> int:
        """Requests due until then that have not ended."""
        due = self._due(until_ns)
        return due - int(self._ended[:due].sum())


def outlook_of(
    rule: StopRule, arrivals: Iterable[Times], schedule_ns: int, window_ns: tuple[int, int]
) -> Outlook:
    """Of a window on a schedule whose times count from ``schedule_ns``."""
    start_ns, end_ns = (moment - schedule_ns for moment in window_ns)
    return Outlook(rule, due_between(arrivals, start_ns, end_ns) + schedule_ns)
