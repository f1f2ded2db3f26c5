"""``server`` of MLPerf Inference: queries arrive as a Poisson process.

MLPerf's metric is the highest rate whose tail latency meets the model's bound
(inference_rules.adoc).
"""

from __future__ import annotations

from loadtest.scenarios.base import OpenLoop, Parameters, Scenario
from loadtest.schedule import poisson


def _make(level: float, _parameters: Parameters, _duration_s: float) -> OpenLoop:
    return OpenLoop(lambda rng: poisson(level, rng))


SCENARIO = Scenario(
    name="server",
    summary="MLPerf: Poisson arrivals, as from many independent users",
    level_name="requests/s",
    levels=(50,),
    make=_make,
)
