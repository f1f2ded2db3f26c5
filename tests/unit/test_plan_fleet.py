"""The smallest fleet: by what was measured, by what is simulated, and with failures to survive."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.camera_schedule import Cameras
from loadtest.objective import Percentile
from loadtest.plan.demand import CameraDemand, Demand, Rate
from loadtest.plan.fleet import Search, Sized, size
from loadtest.plan.predict import Predictor
from loadtest.plan.question import Question
from loadtest.plan.server import Server
from loadtest.profiles.record import Profile
from tests import sample_profile as made
from tests.sample_profile import MS, constant_ns, exponential_ns

S = 0.01
USABLE_RPS = 60.0


def search(
    demand: Demand | float,
    limit_ms: float,
    *,
    profile: Profile | None = None,
    quantile: float = 0.99,
    **changes: Any,
) -> Search:
    demand = demand if not isinstance(demand, float) else Rate(demand)
    objective = Percentile(f"p{100 * quantile:g}", quantile, round(limit_ms * MS))
    question = Question(demand, objective, **changes)
    server = Server.of(profile or made.profile({1: exponential_ns(S * 1e9)}))
    deadline_ns = objective.limit_ns if demand.frames else 0
    own = Predictor(
        server, demand, quantile, 1, question.balance, deadline_ns=deadline_ns, length_s=20.0
    )
    return Search(own, question)


def sized(given: Search, usable_rps: float = USABLE_RPS) -> Sized:
    found = size(given, usable_rps)
    assert found is not None
    return found


def test_headroom_decides_where_the_objective_is_loose() -> None:
    """At 200/s: 200 / (60 x 0.7) is 4.76, 200 / 60 is 3.33, and 4 of 100/s keep a second."""
    found = sized(search(200.0, 1000.0))
    assert found == Sized(replicas=5, by_headroom=5, by_objective=4)
    assert sized(search(200.0, 1000.0, headroom=0.0)).replicas == 4


def test_the_objective_decides_where_headroom_is_not_enough() -> None:
    """An exponential service has its p99 at 46.05 ms alone; 48 ms leave no room to wait."""
    given = search(200.0, 48.0)
    found = sized(given)
    assert found.by_objective > found.by_headroom
    assert found.replicas == found.by_objective
    assert given.at(found.replicas).holds
    assert not given.at(found.replicas - 1).holds


def test_those_left_after_a_failure_hold() -> None:
    """One more for each that may fail, and not one that headroom has put there already."""
    plain = sized(search(200.0, 60.0, headroom=0.0))
    for survive in (1, 3):
        given = search(200.0, 60.0, headroom=0.0, survive=survive)
        found = sized(given)
        assert found.by_objective == plain.by_objective
        assert found.replicas == plain.replicas + survive
        assert given.at(found.replicas - survive).holds
        assert not given.at(found.replicas - survive - 1).holds
    spare = sized(search(200.0, 60.0, headroom=0.6, survive=1))
    assert spare.by_headroom > plain.replicas + 1
    assert spare.replicas == spare.by_headroom


def test_what_no_number_of_replicas_can_keep_is_no_fleet() -> None:
    """40 ms is below the 46.05 ms of a lone request."""
    given = search(200.0, 40.0)
    assert size(given, USABLE_RPS) is None
    assert given.tried == (4, 8, 16, 32)


def test_a_fleet_beyond_the_largest_is_not_even_simulated() -> None:
    given = search(200.0, 1000.0, most_replicas=4)
    assert size(given, USABLE_RPS) is None
    assert given.tried == ()
    assert sized(search(200.0, 1000.0, most_replicas=5)).replicas == 5


def test_every_size_is_simulated_once() -> None:
    given = search(200.0, 60.0, survive=2)
    calls: list[str] = []
    given.predictor.progress = calls.append
    found = sized(given)
    assert len(calls) == given.predictor.windows * len(given.tried)
    given.at(found.replicas)
    assert len(calls) == given.predictor.windows * len(given.tried)


def test_an_objective_is_kept_by_the_slow_windows_too() -> None:
    """By the nineteenth of 20, not by the middle one."""
    given = search(200.0, 1000.0)
    seen = given.at(4).response_ms
    assert seen is not None
    assert seen.low < seen.value < seen.high
    between = (seen.value + seen.high) / 2
    assert not search(200.0, between).at(4).holds
    assert search(200.0, seen.high + 0.001).at(4).holds


@pytest.mark.parametrize(("most_lost", "holds"), [(0.4, False), (0.55, True)])
def test_a_fleet_that_drops_too_many_frames_does_not_hold(most_lost: float, holds: bool) -> None:
    """Of 200 frames per second one replica answers 100, each quick enough."""
    demand = CameraDemand(Cameras(4, 50.0), "latest-only")
    fixed = made.profile({1: constant_ns(S * 1e9)})
    seen = search(demand, 100.0, profile=fixed, most_lost=most_lost).at(1)
    assert seen.response_ms is not None
    assert seen.response_ms.high < 100.0
    assert seen.lost_share == pytest.approx(0.5, abs=0.02)
    assert seen.holds == holds


def test_round_robin_needs_no_fewer_than_the_least_busy() -> None:
    least = sized(search(200.0, 60.0, headroom=0.0))
    turns = sized(search(200.0, 60.0, headroom=0.0, balance="round-robin"))
    assert turns.replicas >= least.replicas
