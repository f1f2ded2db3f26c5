"""``offline`` of MLPerf Inference: every sample is there from the start.

MLPerf sends at least 24,576 samples and reports samples per second (inference_rules.adoc); the
level is how many requests are in flight meanwhile.
"""

from __future__ import annotations

from pydantic import Field

from loadtest.scenarios.base import ClosedLoop, Parameters, Scenario


class OfflineParameters(Parameters):
    """Attributes: ``requests`` in all, each of as many rows as the run's batch size."""

    requests: int = Field(default=2048, gt=0)


def _make(level: float, parameters: OfflineParameters, _duration_s: float) -> ClosedLoop:
    return ClosedLoop(users=int(level), requests=parameters.requests)


SCENARIO = Scenario(
    name="offline",
    summary="MLPerf: all samples due at once; its metric is samples per second",
    level_name="requests in flight",
    levels=(8,),
    make=_make,
    parameters=OfflineParameters,
    whole_levels=True,
)
