"""``spike``: a steady rate, a sudden multiple of it, and the steady rate again."""

from __future__ import annotations

from pydantic import Field

from loadtest.scenarios.base import OpenLoop, Parameters, Scenario
from loadtest.schedule import varying
from serving.errors import UsageError


class SpikeParameters(Parameters):
    """Attributes: ``factor`` times the level from ``at_s`` on, for ``length_s`` seconds."""

    factor: float = Field(default=4.0, gt=0)
    at_s: float = Field(default=5.0, gt=0)
    length_s: float = Field(default=2.0, gt=0)


def _make(level: float, parameters: SpikeParameters, duration_s: float) -> OpenLoop:
    begin, end = parameters.at_s, parameters.at_s + parameters.length_s
    if end >= duration_s:
        raise UsageError(
            f"the spike ends after {end:g} s and the window is {duration_s:g} s",
            hint="Lengthen it with --duration, or set at_s and length_s.",
        )
    high = level * parameters.factor
    profile = (
        *((0.0, level), (begin, level), (begin, high), (end, high)),
        *((end, level), (duration_s, level)),
    )
    return OpenLoop(lambda rng: varying(profile, rng), stationary=False, length_s=duration_s)


SCENARIO = Scenario(
    name="spike",
    summary="Poisson arrivals with a sudden multiple in the middle",
    level_name="requests/s before and after",
    levels=(50,),
    make=_make,
    parameters=SpikeParameters,
    duration_s=15.0,
)
