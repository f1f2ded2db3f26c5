"""``streams``: cameras, microphones, vehicles; each sends its samples in order on a connection.

A stream's next request waits for the reply to the one before, as whoever must carry a state along
has to. With a pace its frames are due at a fixed rate that no answer can delay, and a frame that
waited is timed from when it was due.
"""

from __future__ import annotations

from pydantic import Field

from loadtest.camera_schedule import Cameras
from loadtest.scenarios.base import ClosedLoop, Load, OpenLoop, Parameters, Scenario, streams_of


class StreamsParameters(Parameters):
    """Attributes: ``pace_fps``, frames per second of each stream; without it a closed loop."""

    pace_fps: float | None = Field(default=None, gt=0)


def _make(level: float, parameters: StreamsParameters, _duration_s: float) -> Load:
    if parameters.pace_fps is None:
        return ClosedLoop(users=int(level), in_order=True)
    # Nobody sets cameras going together, so each stream begins somewhere in its first period.
    return OpenLoop.of(streams_of(Cameras(int(level), parameters.pace_fps)))


SCENARIO = Scenario(
    name="streams",
    summary="streams that each send their samples in order, one at a time",
    level_name="streams",
    levels=(1, 4),
    make=_make,
    parameters=StreamsParameters,
    whole_levels=True,
)
