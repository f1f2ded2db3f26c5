"""What must be served: a rate, cameras, or a trace; each gives the arrivals of one window. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import numpy as np

from loadtest.camera_schedule import Cameras, FramePolicy, Numbers
from loadtest.capacity.scheduler import Frames
from loadtest.rounding import four_digits
from loadtest.schedule import Times, poisson
from serving.errors import UsageError

_NS = 1e9


@dataclass(frozen=True)
class Arrivals:
    """When requests are due in ns, ascending, and the stream of each where there are streams."""

    due_ns: Times
    streams: Numbers | None = None


class Demand(Protocol):
    """Attributes: ``rate_rps`` of its busiest stretch; ``text`` in words."""

    @property
    def rate_rps(self) -> float: ...

    @property
    def text(self) -> str: ...

    @property
    def frames(self) -> Frames | None:
        """What becomes of frames that wait; ``None`` where arrivals belong to nobody."""
        ...

    def arrivals(self, length_s: float, seed: np.random.SeedSequence) -> Arrivals: ...

    def scaled(self, factor: float) -> Demand:
        """So many times as much of the same: of cameras more of them, at least one."""
        ...

    def hurried(self, factor: float) -> Demand:
        """The same clients, so many times as fast: a burst."""
        ...


@dataclass(frozen=True)
class Rate:
    """Independent clients: Poisson arrivals.

    Attributes:
        peak_rps: of the busiest hour.
        day: each hour's rate over the peak's, where the day has a shape.
    """

    peak_rps: float
    day: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not 0 < self.peak_rps < float("inf"):
            raise UsageError(
                f"a demand of {self.peak_rps:g} requests/s", hint="Give a rate above 0."
            )
        if self.day and not (all(0 <= share <= 1 for share in self.day) and any(self.day)):
            raise UsageError(
                "a day's shape with shares below 0 or above 1",
                hint="Give each hour's rate over that of the busiest hour.",
            )

    @property
    def rate_rps(self) -> float:
        return self.peak_rps

    @property
    def mean_rps(self) -> float:
        """Over the whole day."""
        return self.peak_rps * (float(np.mean(self.day)) if self.day else 1.0)

    @property
    def text(self) -> str:
        day = f", {four_digits(self.mean_rps)}/s over the day" if self.day else ""
        return f"{four_digits(self.peak_rps)} requests/s, Poisson{day}"

    @property
    def frames(self) -> Frames | None:
        return None

    def arrivals(self, length_s: float, seed: np.random.SeedSequence) -> Arrivals:
        found, end_ns = [], length_s * _NS
        for times in poisson(self.peak_rps, np.random.default_rng(seed)):
            found.append(times[times < end_ns])
            if len(found[-1]) < len(times):
                break
        return Arrivals(np.concatenate(found))

    def scaled(self, factor: float) -> Rate:
        return replace(self, peak_rps=self.peak_rps * factor)

    def hurried(self, factor: float) -> Rate:
        return self.scaled(factor)


@dataclass(frozen=True)
class CameraDemand:
    """Cameras, and what becomes of frames that cannot be served at once."""

    cameras: Cameras
    policy: FramePolicy
    deadline_ns: int = 0
    in_order: bool = True

    @property
    def rate_rps(self) -> float:
        return self.cameras.count * self.cameras.fps

    @property
    def text(self) -> str:
        cameras = self.cameras
        return (
            f"{cameras.count:,} cameras at {cameras.fps:g} fps, {cameras.phase} phase, "
            f"{self.policy}"
        )

    @property
    def frames(self) -> Frames:
        return Frames.at_camera(self.policy, self.deadline_ns, in_order=self.in_order)

    def arrivals(self, length_s: float, seed: np.random.SeedSequence) -> Arrivals:
        frames = max(math.ceil(length_s * self.cameras.fps), 1)
        due_ns, streams = self.cameras.all_arrivals(frames, seed)
        inside = due_ns < length_s * _NS
        return Arrivals(due_ns[inside], streams[inside])

    def scaled(self, factor: float) -> CameraDemand:
        count = max(round(self.cameras.count * factor), 1)
        return replace(self, cameras=replace(self.cameras, count=count))

    def hurried(self, factor: float) -> CameraDemand:
        cameras = self.cameras
        fps = cameras.fps * factor
        jitter_ns = min(cameras.jitter_ns, int(_NS / fps))
        return replace(self, cameras=replace(cameras, fps=fps, jitter_ns=jitter_ns))


@dataclass(frozen=True)
class Trace:
    """A recorded day or flight, over and over; its busiest minute is what is planned for.

    Attributes:
        times_s: ascending.
        stretch_s: of the busiest part; all of a trace that is shorter.
    """

    times_s: tuple[float, ...]
    stretch_s: float = 60.0

    def __post_init__(self) -> None:
        if len(self.times_s) < 2 or self.times_s[-1] <= self.times_s[0]:
            raise UsageError(
                f"a trace of {len(self.times_s)} requests at one moment has no rate",
                hint="Give a trace that goes on for some time.",
            )

    @property
    def rate_rps(self) -> float:
        first, last = self._busiest
        return (last - first) / self._length_s

    @property
    def _length_s(self) -> float:
        return min(self.stretch_s, self.times_s[-1] - self.times_s[0])

    @property
    def text(self) -> str:
        return (
            f"a trace of {len(self.times_s):,} requests, {four_digits(self.rate_rps)}/s in its "
            f"busiest {self._length_s:g} s"
        )

    @property
    def frames(self) -> Frames | None:
        return None

    def arrivals(self, length_s: float, seed: np.random.SeedSequence) -> Arrivals:
        """The busiest stretch, repeated from a place that the seed chooses."""
        first, last = self._busiest
        own = np.array(self.times_s[first:last]) - self.times_s[first]
        period_s = self._length_s
        turns = int(np.ceil(length_s / period_s)) + 1
        start_s = float(np.random.default_rng(seed).random()) * period_s
        times = (own + np.arange(turns)[:, None] * period_s).ravel() - start_s
        inside = times[(times >= 0) & (times < length_s)]
        return Arrivals(np.rint(inside * _NS).astype(np.int64))

    def scaled(self, factor: float) -> Trace:
        times = tuple(time / factor for time in self.times_s)
        return Trace(times, self.stretch_s / factor)

    def hurried(self, factor: float) -> Trace:
        return self.scaled(factor)

    @cached_property
    def _busiest(self) -> tuple[int, int]:
        """Places of its first request and behind its last."""
        times = np.array(self.times_s)
        last = np.searchsorted(times, times + self.stretch_s)
        first = int(np.argmax(last - np.arange(len(times))))
        return first, int(last[first])


def parse_day(values: Sequence[str]) -> tuple[float, ...]:
    """24 shares of the busiest hour.

    Raises:
        UsageError: there are not 24, or one is no number.
    """
    try:
        found = tuple(float(value) for value in values)
    except ValueError:
        found = ()
    if len(found) != 24:
        raise UsageError(
            "a day's shape needs 24 numbers", hint="Give each hour's share of the busiest hour's."
        )
    return found
