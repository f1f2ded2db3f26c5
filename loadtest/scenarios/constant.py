"""``constant``: evenly spaced arrivals, as from one clock."""

from __future__ import annotations

from loadtest.scenarios.base import OpenLoop, Parameters, Scenario
from loadtest.schedule import constant


def _make(level: float, _parameters: Parameters, _duration_s: float) -> OpenLoop:
    return OpenLoop(lambda _rng: constant(level))


SCENARIO = Scenario(
    name="constant",
    summary="evenly spaced arrivals",
    level_name="requests/s",
    levels=(50,),
    make=_make,
)
