"""``multi-stream`` of MLPerf Inference: queries of several samples, one query at a time.

MLPerf asks for eight samples per query and reports the 99th percentile of the time until the last
of them is answered (inference_rules.adoc). Each sample is a request of its own here.
"""

from __future__ import annotations

from loadtest.scenarios.base import ClosedLoop, Parameters, Scenario


def _make(level: float, _parameters: Parameters, _duration_s: float) -> ClosedLoop:
    return ClosedLoop(users=int(level), together=True)


SCENARIO = Scenario(
    name="multi-stream",
    summary="MLPerf: queries of 8 samples, one at a time; its metric is p99 of a whole query",
    level_name="samples per query",
    levels=(8,),
    make=_make,
    whole_levels=True,
)
