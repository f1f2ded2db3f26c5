"""What was delivered of the frames of cameras.

A frame's age is counted from when it came to when it was answered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadtest.capacity.loop import Small
from loadtest.capacity.service import Times
from loadtest.capacity.simulate import Requests
from loadtest.confidence import sample_floor
from serving.errors import UsageError

_NS = 1e9


@dataclass(frozen=True)
class Delivery:
    """What became of the frames of one stream, or of all together.

    Attributes:
        frames: those that came in the window; ages, missed and dropped are of them.
        delivered_fps: answers within the window per second, whenever their frames came.
        age_p50_ns, age_p99_ns: of delivered frames, nearest rank; ``None`` for too few.
        missed: frames that were not delivered by the deadline, be it late or never; ``None``
            without a deadline.
        dropped: frames that were never delivered.
        longest_gap_ns: between answers of one stream, from the window's start to its end.
    """

    frames: int
    delivered_fps: float
    age_p50_ns: int | None
    age_p99_ns: int | None
    missed: int | None
    dropped: int
    longest_gap_ns: int


@dataclass(frozen=True)
class CameraReport:
    """Attributes: ``together``: of all frames; its gap is the longest of any stream."""

    together: Delivery
    streams: tuple[Delivery, ...]


def report(
    requests: Requests, streams: int, window_ns: tuple[int, int], deadline_ns: int | None = None
) -> CameraReport:
    """What ``streams`` cameras got in [start, end) of the window.

    Raises:
        UsageError: a window without length, or requests of no stream.
    """
    start_ns, end_ns = window_ns
    if end_ns <= start_ns or (len(requests) and int(requests.stream.min()) < 0):
        raise UsageError(
            "a report of cameras needs frames of streams, and a window that ends after its start",
            hint="Simulate with streams, and give the window in ns.",
        )
    came, done = requests.arrived_ns, requests.done_ns
    window = _Window(start_ns, end_ns, deadline_ns)
    # A frame without an answer has an age below zero.
    ages_ns = np.where(requests.ok, done - came, -1)
    inside = (came >= start_ns) & (came < end_ns)
    answered = requests.ok & (done >= start_ns) & (done < end_ns)
    ages = _by_stream(ages_ns, requests.stream, inside, streams)
    answers = _by_stream(done, requests.stream, answered, streams)
    each = tuple(
        window.delivery(ages_ns, len(done_ns), window.gap_ns(done_ns))
        for ages_ns, done_ns in zip(ages, answers, strict=True)
    )
    longest_ns = max(one.longest_gap_ns for one in each)
    together = window.delivery(ages_ns[inside], int(answered.sum()), longest_ns)
    return CameraReport(together, each)


def _by_stream(
    values: Times, stream: Small, chosen: npt.NDArray[np.bool_], streams: int
) -> list[Times]:
    """The chosen values of each stream."""
    found = np.flatnonzero(chosen)
    order = found[np.argsort(stream[found], kind="stable")]
    ends = np.searchsorted(stream[order], np.arange(1, streams))
    return np.split(values[order], ends)


@dataclass(frozen=True)
class _Window:
    start_ns: int
    end_ns: int
    deadline_ns: int | None

    def delivery(self, ages_ns: Times, answers: int, longest_gap_ns: int) -> Delivery:
        known = np.sort(ages_ns[ages_ns >= 0])
        missed = None
        if self.deadline_ns is not None:
            missed = len(ages_ns) - int(np.searchsorted(known, self.deadline_ns, side="right"))
        return Delivery(
            frames=len(ages_ns),
            delivered_fps=answers / (self.end_ns - self.start_ns) * _NS,
            age_p50_ns=_percentile(known, 0.5),
            age_p99_ns=_percentile(known, 0.99),
            missed=missed,
            dropped=len(ages_ns) - len(known),
            longest_gap_ns=longest_gap_ns,
        )

    def gap_ns(self, done_ns: Times) -> int:
        moments = np.concatenate([[self.start_ns], np.sort(done_ns), [self.end_ns]])
        return int(np.diff(moments).max())


def _percentile(ordered: Times, quantile: float) -> int | None:
    if len(ordered) < sample_floor(quantile):
        return None
    return int(ordered[math.ceil(quantile * len(ordered)) - 1])
