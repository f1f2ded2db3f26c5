"""``ramp``: the rate rises in a straight line, to see where a server begins to give way."""

from __future__ import annotations

from pydantic import Field

from loadtest.scenarios.base import OpenLoop, Parameters, Scenario
from loadtest.schedule import varying


class RampParameters(Parameters):
    """Attributes: ``start`` is the first rate, as a share of the level."""

    start: float = Field(default=0.1, ge=0)


def _make(level: float, parameters: RampParameters, duration_s: float) -> OpenLoop:
    profile = ((0.0, level * parameters.start), (duration_s, level))
    return OpenLoop(lambda rng: varying(profile, rng), stationary=False, length_s=duration_s)


SCENARIO = Scenario(
    name="ramp",
    summary="Poisson arrivals whose rate rises to the level",
    level_name="requests/s at the end",
    levels=(100,),
    make=_make,
    parameters=RampParameters,
    duration_s=20.0,
)
