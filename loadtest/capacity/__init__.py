"""How many machines: a fleet simulated from what one machine was measured to do. Pure.

``simulate`` runs requests through the scheduler's rules over measured service times; ``formulas``
stand beside it; ``cameras`` makes the frames of many streams and says what was delivered of them.
No machine is carried beyond what was measured of it.
"""

from __future__ import annotations

from loadtest.camera_schedule import Cameras, FramePolicy
from loadtest.capacity.cameras import CameraReport, Delivery, report
from loadtest.capacity.scheduler import Balance, Fleet, Frames, Scheduler
from loadtest.capacity.service import ServiceSamples
from loadtest.capacity.shards import Shard, split
from loadtest.capacity.simulate import OUTCOMES, Requests, Simulation, simulate

__all__ = [
    "OUTCOMES",
    "Balance",
    "CameraReport",
    "Cameras",
    "Delivery",
    "Fleet",
    "FramePolicy",
    "Frames",
    "Requests",
    "Scheduler",
    "ServiceSamples",
    "Shard",
    "Simulation",
    "report",
    "simulate",
    "split",
]
