"""``streams``: cameras, microphones, vehicles; each sends its samples in order on a connection.

A stream's next request waits for the reply to the one before, as whoever must carry a state along
has to. With a pace its frames are due at a fixed rate that no answer can delay, and a frame that
waited is timed from when it was due.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import count

import numpy as np
from pydantic import Field

from loadtest.scenarios.base import ClosedLoop, Load, OpenLoop, Parameters, Scenario
from loadtest.schedule import CHUNK, Times


class StreamsParameters(Parameters):
    """Attributes: ``pace_fps``, frames per second of each stream; without it a closed loop."""

    pace_fps: float | None = Field(default=None, gt=0)


def _make(level: float, parameters: StreamsParameters, _duration_s: float) -> Load:
    if parameters.pace_fps is None:
        return ClosedLoop(users=int(level))
    streams = int(level)
    return OpenLoop(partial(_frames, streams, parameters.pace_fps), streams=streams)


def _frames(streams: int, pace_fps: float, rng: np.random.Generator) -> Iterator[Times]:
    """All streams' frames in one schedule: the i-th belongs to stream ``i % streams``.

    Nobody sets cameras going together, so each stream begins somewhere in its first period.
    """
    phases = np.sort(rng.random(streams))
    periods = max(1, CHUNK // streams)
    for first in count(0, periods):
        turns = np.arange(first, first + periods)[:, None] + phases
        yield np.rint(turns.ravel() / pace_fps * 1e9).astype(np.int64)


SCENARIO = Scenario(
    name="streams",
    summary="streams that each send their samples in order, one at a time",
    level_name="streams",
    levels=(1, 4),
    make=_make,
    parameters=StreamsParameters,
    whole_levels=True,
    in_order=True,
)
