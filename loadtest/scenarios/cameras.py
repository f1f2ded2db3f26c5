"""``cameras``: frames of cameras, due whether the last one was answered or not.

A frame that is due while its camera waits for a reply is sent after it, dropped, or replaced by the
next, as the policy says. The schedule is that of a simulated fleet (``loadtest.capacity``).
"""

from __future__ import annotations

from pydantic import Field

from loadtest.camera_schedule import Cameras, FramePolicy, Phase
from loadtest.scenarios.base import OpenLoop, Parameters, Scenario, deadline_in_ns, streams_of


class CamerasParameters(Parameters):
    """Attributes:
    phase: whether each camera begins somewhere in its first period, or all together.
    jitter_ms: each frame is late by up to this, at most a period.
    policy: what becomes of a frame that must wait; see ``FramePolicy``.
    deadline_ms: how old a frame may be when it is answered; ``drop-late`` drops by it.
    """

    fps: float = Field(default=10.0, gt=0, allow_inf_nan=False)
    phase: Phase = "random"
    jitter_ms: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    policy: FramePolicy = "fifo"
    deadline_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)


def _make(level: float, parameters: CamerasParameters, _duration_s: float) -> OpenLoop:
    cameras = Cameras(
        int(level), parameters.fps, parameters.phase, round(parameters.jitter_ms * 1e6)
    )
    deadline_ns = deadline_in_ns(parameters.deadline_ms)
    return OpenLoop.of(streams_of(cameras, parameters.policy, deadline_ns))


SCENARIO = Scenario(
    name="cameras",
    summary="frames of cameras at a fixed rate, kept or dropped when they must wait",
    level_name="cameras",
    levels=(1, 4),
    make=_make,
    parameters=CamerasParameters,
    whole_levels=True,
)
