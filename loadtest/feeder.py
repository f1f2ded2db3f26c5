"""An open loop's schedule on its way into the engine."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from loadtest.engine import Engine
from loadtest.engine.base import Choice
from loadtest.schedule import Times

_LOOK_AHEAD_NS = 1_000_000_000

Choose = Callable[[int, int], Choice]
"""The payloads of so many arrivals from the given one on."""


def at_random(payloads: int, seed: int) -> Choose:
    # Apart from the schedule's own generator, so that payloads do not change the times.
    rng = np.random.default_rng((seed, payloads))
    return lambda _first, count: rng.integers(0, payloads, count, dtype=np.uint32)


def in_turn(streams: int, samples: int, first: int, count: int) -> Choice:
    """Arrivals go round the streams; each stream goes through its own samples."""
    step, stream = np.divmod(np.arange(first, first + count, dtype=np.int64), streams)
    payloads: Choice = (stream * samples + step % samples).astype(np.uint32)
    return payloads


class Feeder:
    """Hands a schedule to the engine a second ahead, so that a long one needs no memory."""

    def __init__(self, arrivals: Iterator[Times], start_ns: int, choose: Choose) -> None:
        self._arrivals = arrivals
        self._start_ns = start_ns
        self._choose = choose
        self._given = 0
        self._due = np.zeros(0, np.int64)
        self._ahead: deque[Times] = deque()
        self._passed = 0

    def feed(self, engine: Engine) -> None:
        ahead_ns = time.monotonic_ns() + _LOOK_AHEAD_NS
        while True:
            if not len(self._due):
                chunk = next(self._arrivals, None)
                if chunk is None:
                    return
                self._due = chunk + self._start_ns
                continue
            ready = int(np.searchsorted(self._due, ahead_ns))
            taken = engine.schedule(self._due[:ready], self._choose(self._given, ready))
            self._given += taken
            self._ahead.append(self._due[:taken])
            self._due = self._due[taken:]
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
