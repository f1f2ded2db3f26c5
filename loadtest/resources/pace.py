"""How often a reading that costs much is made."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")

SHARE = 0.001
LONGEST_S = 30.0
"""Between two readings, however much one costs."""


class Seldom(Generic[T]):
    """A reading that is made anew only so often that it takes at most ``SHARE`` of one core.

    The clocks, in seconds, are arguments for tests only.
    """

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        cpu_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        self._clock, self._cpu_clock = clock, cpu_clock
        self._due_s = self._read_s = float("-inf")
        self._value: T | None = None

    def read(self, read: Callable[[], T], *, at_once: bool) -> tuple[T | None, float]:
        """The newest value and its age in seconds, 0 when it was read now.

        ``None`` after a reading that raised, which is raised here once.
        """
        now_s = self._clock()
        if at_once or now_s >= self._due_s:
            self._value, self._read_s = None, now_s
            begun_s = self._cpu_clock()
            try:
                self._value = read()
            finally:
                cost_s = self._cpu_clock() - begun_s
                self._due_s = now_s + min(cost_s / SHARE, LONGEST_S)
        return self._value, now_s - self._read_s
