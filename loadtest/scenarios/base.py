"""What a scenario is: a name, a level that can be swept, parameters, and the load they make."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import BaseModel, ConfigDict

from loadtest.camera_schedule import Cameras, FramePolicy, Frames
from loadtest.schedule import CHUNK, Times
from serving.errors import UsageError


class Parameters(BaseModel):
    """Settings of a scenario besides its level; unknown names are refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True)
class ClosedLoop:
    """So many requests in flight, each due when the one before it was answered.

    Attributes:
        together: the users' requests form one query; the next is due when all are answered.
        in_order: each user is a stream, which sends the samples in their order on a connection of
            its own.
        requests: all due at the start, and no more; the window ends with the last answer.
    """

    users: int
    together: bool = False
    in_order: bool = False
    requests: int | None = None


@dataclass(frozen=True)
class Streams:
    """Whose frames the arrivals of an open loop are.

    Each stream sends the samples in their order on a connection of its own, one at a time.

    Attributes:
        names: one for each.
        frames: from a random generator to frames in chunks.
        policy: what becomes of a frame that waits for the reply to the one before it.
        deadline_ns: how old a frame may be when it is answered; ``None`` where nobody says.
    """

    names: tuple[str, ...]
    frames: Callable[[np.random.Generator], Iterator[Frames]]
    policy: FramePolicy = "fifo"
    deadline_ns: int | None = None

    def __post_init__(self) -> None:
        """Raises UsageError where ``drop-late`` has no deadline."""
        if self.policy == "drop-late" and self.deadline_ns is None:
            raise UsageError(
                "the frame policy drop-late needs a deadline", hint="Give -p deadline_ms=MS."
            )

    def moments(self, rng: np.random.Generator) -> Iterator[Times]:
        """When frames are due, whosever they are."""
        for due_ns, _ in self.frames(rng):
            yield due_ns


@dataclass(frozen=True)
class OpenLoop:
    """Requests due at moments that no answer can delay.

    Attributes:
        arrivals: from a random generator to ascending times, in chunks.
        stationary: whether any stretch is like any other, so that warm-up may be cut off its
            beginning and steadiness asked of the rest.
        length_s: where the scenario ends by itself; ``None`` when the duration is the user's.
        streams: whose frames they are; ``None`` when arrivals belong to nobody.
    """

    arrivals: Callable[[np.random.Generator], Iterator[Times]]
    stationary: bool = True
    length_s: float | None = None
    streams: Streams | None = None

    @classmethod
    def of(
        cls, streams: Streams, *, stationary: bool = True, length_s: float | None = None
    ) -> OpenLoop:
        """The frames of streams."""
        return cls(streams.moments, stationary, length_s, streams)


def streams_of(
    cameras: Cameras, policy: FramePolicy = "fifo", deadline_ns: int | None = None
) -> Streams:
    """Cameras are numbered from 1."""
    return Streams(
        names=tuple(str(number + 1) for number in range(cameras.count)),
        frames=lambda rng: cameras.arrivals(None, rng, at_once=CHUNK),
        policy=policy,
        deadline_ns=deadline_ns,
    )


def deadline_in_ns(deadline_ms: float | None) -> int | None:
    """As a parameter gives it."""
    return None if deadline_ms is None else round(deadline_ms * 1e6)


Load = ClosedLoop | OpenLoop


@dataclass(frozen=True)
class Scenario:
    """One way in which requests come.

    Attributes:
        level_name: what the level counts, with its unit: ``users``, ``requests/s``.
        levels: the levels of a run that names none.
        duration_s: length of one window of a run that names none.
        whole_levels: whether only whole numbers make sense.
        make: from level, parameters and window length to the load.
            Raises UsageError for parameters that do not go together.
    """

    name: str
    summary: str
    level_name: str
    levels: tuple[float, ...]
    make: Callable[[float, Any, float], Load]
    parameters: type[Parameters] = Parameters
    whole_levels: bool = False
    duration_s: float = 10.0
