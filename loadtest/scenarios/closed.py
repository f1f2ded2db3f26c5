"""``closed``: a fixed number of users, each sending as soon as it has its answer."""

from __future__ import annotations

from loadtest.scenarios.base import ClosedLoop, Parameters, Scenario


def _make(level: float, _parameters: Parameters, _duration_s: float) -> ClosedLoop:
    return ClosedLoop(users=int(level))


SCENARIO = Scenario(
    name="closed",
    summary="so many users at once, each waiting for its answer",
    level_name="users",
    levels=(1, 4),
    make=_make,
    whole_levels=True,
    duration_s=4.0,
)
