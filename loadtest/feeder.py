"""An open loop's schedule on its way into the engine: when each is due, and what it sends."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator

import numpy as np

from loadtest.camera_schedule import Frames, Numbers
from loadtest.engine import Engine
from loadtest.engine.base import Choice
from loadtest.schedule import Times

_LOOK_AHEAD_NS = 1_000_000_000

Chosen = Iterator[tuple[Times, Choice]]
"""Arrivals in chunks: moments in ns, ascending, and the payload of each."""


def at_random(arrivals: Iterable[Times], payloads: int, seed: int) -> Chosen:
    """Of nobody: any payload is as likely as any other."""
    # Apart from the schedule's own generator, so that payloads do not change the times.
    rng = np.random.default_rng((seed, payloads))
    for due_ns in arrivals:
        yield due_ns, rng.integers(0, payloads, len(due_ns), dtype=np.uint32)


def in_order(frames: Iterable[Frames], streams: int, samples: int) -> Chosen:
    """Each stream goes through its own samples, from the first again after the last."""
    sent = np.zeros(streams, np.int64)
    for due_ns, numbers in frames:
        turns = sent[numbers] + _earlier(numbers)
        yield due_ns, (numbers * np.int64(samples) + turns % samples).astype(np.uint32)
        sent += np.bincount(numbers, minlength=streams)


def _earlier(numbers: Numbers) -> Times:
    """How often each number stood there before."""
    order = np.argsort(numbers, kind="stable")
    ordered = numbers[order]
    found = np.empty(len(numbers), np.int64)
    found[order] = np.arange(len(numbers)) - np.searchsorted(ordered, ordered)
    return found


class Feeder:
    """Hands a schedule to the engine a second ahead, so that a long one needs no memory."""

    def __init__(self, chosen: Chosen, start_ns: int) -> None:
        self._chosen = chosen
        self._start_ns = start_ns
        self._due, self._payloads = np.zeros(0, np.int64), np.zeros(0, np.uint32)
        self._ahead: deque[Times] = deque()
        self._passed = 0

    def feed(self, engine: Engine) -> None:
        ahead_ns = time.monotonic_ns() + _LOOK_AHEAD_NS
        while True:
            if not len(self._due):
                chunk = next(self._chosen, None)
                if chunk is None:
                    return
                self._due, self._payloads = chunk[0] + self._start_ns, chunk[1]
                continue
            ready = int(np.searchsorted(self._due, ahead_ns))
            taken = engine.schedule(self._due[:ready], self._payloads[:ready])
            self._ahead.append(self._due[:taken])
            self._due, self._payloads = self._due[taken:], self._payloads[taken:]
            if taken < ready or len(self._due):
                return

    def due_since(self, start_ns: int) -> int:
        """How many of the arrivals from ``start_ns`` on have become due; it must not change."""
        now_ns = time.monotonic_ns()
        while self._ahead:
            first, last = np.searchsorted(self._ahead[0], (start_ns, now_ns))
            self._passed += max(int(last - first), 0)
            if last < len(self._ahead[0]):
                self._ahead[0] = self._ahead[0][last:]
                break
            self._ahead.popleft()
        return self._passed
