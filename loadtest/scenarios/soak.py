"""``soak``: a moderate Poisson load for long, to find what only time shows."""

from __future__ import annotations

from loadtest.scenarios.base import OpenLoop, Parameters, Scenario
from loadtest.schedule import poisson


def _make(level: float, _parameters: Parameters, _duration_s: float) -> OpenLoop:
    return OpenLoop(lambda rng: poisson(level, rng))


SCENARIO = Scenario(
    name="soak",
    summary="Poisson arrivals for 45 minutes: leaks, throttling, slow decay",
    level_name="requests/s",
    levels=(50,),
    make=_make,
    duration_s=2700.0,
)
