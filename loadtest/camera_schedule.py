"""When the frames of cameras come, and what becomes of those that must wait. Pure.

Simulation and live load take both from here, so that they mean the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count as counted
from typing import Literal

import numpy as np
import numpy.typing as npt

from loadtest.schedule import Times
from serving.errors import UsageError

FramePolicy = Literal["fifo", "drop-late", "latest-only"]
"""- ``fifo``: each is served, in order.
- ``drop-late``: one that has reached its deadline when its turn comes is dropped.
- ``latest-only``: one that waits is replaced by the next of its stream, which takes its place.
"""
Phase = Literal["random", "synchronised"]
Numbers = npt.NDArray[np.int32]
"""Of the streams that frames belong to."""
Frames = tuple[Times, Numbers]
"""Moments in ns, ascending, and the stream of each."""

_NS = 1e9
_FRAMES_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Cameras:
    """``count`` streams at one frame rate.

    Attributes:
        phase: whether each stream begins somewhere in its first period, or all together.
        jitter_ns: each frame is late by a time uniform from 0 to this; at most a period, so that
            the frames of a stream stay in order.

    Raises:
        UsageError: no streams, no rate, or more jitter than that.
    """

    count: int
    fps: float
    phase: Phase = "random"
    jitter_ns: int = 0

    def __post_init__(self) -> None:
        if self.count < 1 or self.fps <= 0 or not 0 <= self.jitter_ns * self.fps <= _NS:
            raise UsageError(
                f"{self.count} cameras of {self.fps:g} fps with a jitter of {self.jitter_ns} ns",
                hint="Give at least one camera, a rate above 0, and a jitter of at most a period.",
            )

    def arrivals(
        self,
        frames: int | None,
        seed: int | np.random.SeedSequence | np.random.Generator,
        *,
        at_once: int = _FRAMES_AT_ONCE,
    ) -> Iterator[Frames]:
        """``frames`` of each stream, or without an end, in chunks of about ``at_once`` in all.

        Frames of one moment come in the order of their streams. Neither the chunks nor the number
        of frames change a moment.
        """
        rng = np.random.default_rng(seed)
        phases = rng.random(self.count) if self.phase == "random" else np.zeros(self.count)
        streams = np.arange(self.count, dtype=np.int32)
        kept_ns, kept = np.zeros(0, np.int64), np.zeros(0, np.int32)
        turns_at_once = max(1, at_once // self.count)
        firsts = counted(0, turns_at_once) if frames is None else range(0, frames, turns_at_once)
        for first in firsts:
            last = min(first + turns_at_once, math.inf if frames is None else frames)
            turns = np.arange(first, last)[:, None] + phases
            due_ns = turns * (_NS / self.fps) + rng.random(turns.shape) * self.jitter_ns
            times_ns = np.concatenate([kept_ns, np.rint(due_ns).astype(np.int64).ravel()])
            numbers = np.concatenate([kept, np.tile(streams, len(turns))])
            order = np.lexsort((numbers, times_ns))
            times_ns, numbers = times_ns[order], numbers[order]
            # The next turn's frames may come before the last of these.
            safe_ns = math.inf if last == frames else last * _NS / self.fps - 1
            ready = int(np.searchsorted(times_ns, safe_ns))
            yield times_ns[:ready], numbers[:ready]
            kept_ns, kept = times_ns[ready:], numbers[ready:]

    def all_arrivals(self, frames: int, seed: int | np.random.SeedSequence) -> Frames:
        """The same in one piece."""
        chunks = list(self.arrivals(frames, seed))
        return np.concatenate([a for a, _ in chunks]), np.concatenate([b for _, b in chunks])


def share_of(chunks: Iterable[Frames], index: int, count: int) -> Iterator[Frames]:
    """All frames of every ``count``-th stream from ``index`` on: one of several generators' own.

    Its streams are numbered from 0 again.
    """
    for due_ns, numbers in chunks:
        own = numbers % count == index
        yield due_ns[own], numbers[own] // count
