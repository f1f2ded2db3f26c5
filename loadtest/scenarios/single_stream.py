"""``single-stream`` of MLPerf Inference: one query of one sample at a time.

MLPerf's metric is the 90th percentile of latency
(https://github.com/mlcommons/inference_policies/blob/master/inference_rules.adoc).
"""

from __future__ import annotations

from loadtest.scenarios.base import ClosedLoop, Parameters, Scenario


def _make(_level: float, _parameters: Parameters, _duration_s: float) -> ClosedLoop:
    return ClosedLoop(users=1)


SCENARIO = Scenario(
    name="single-stream",
    summary="MLPerf: one request at a time; its metric is p90",
    level_name="users",
    levels=(1,),
    make=_make,
    whole_levels=True,
)
