"""``bursty``: gamma-distributed gaps, more clustered than Poisson at the same mean rate."""

from __future__ import annotations

from pydantic import Field

from loadtest.scenarios.base import OpenLoop, Parameters, Scenario
from loadtest.schedule import gamma


class BurstyParameters(Parameters):
    """Attributes: ``burstiness``, the gaps' squared coefficient of variation; 1 is Poisson."""

    burstiness: float = Field(default=4.0, gt=0)


def _make(level: float, parameters: BurstyParameters, _duration_s: float) -> OpenLoop:
    return OpenLoop(lambda rng: gamma(level, parameters.burstiness, rng))


SCENARIO = Scenario(
    name="bursty",
    summary="gamma arrivals in bursts, mean rate as given",
    level_name="requests/s",
    levels=(50,),
    make=_make,
    parameters=BurstyParameters,
)
