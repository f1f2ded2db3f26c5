"""What another instance on the same machine brought: K2, where four answered less than two."""

from __future__ import annotations

from typing import Any

import pytest

from loadtest.plan.scaling import measured_scaling, scaling_of
from loadtest.plan.server import Server
from tests import sample_profile as made
from tests.sample_profile import constant_ns, point

MEASURED = {4: 3135.0, 1: 2162.0, 2: 4061.0}
ONE_RPS = MEASURED[1]


def server(instances: int, rps: float, **changes: Any) -> Server:
    sweep = (point(1, 0.4 * rps, 1.0), point(4, rps, 2.0), point(8, 0.9 * rps, 4.0))
    service = {1: constant_ns(instances / rps * 1e9)}
    return Server.of(made.profile(service, instances=instances, **({"sweep": sweep} | changes)))


def test_efficiency_falls_and_the_knee_is_where_the_rate_is_highest() -> None:
    """4061 of twice 2162 are 94%; the third and fourth instance lose 463 each, 21% of one."""
    points = scaling_of(MEASURED)
    assert [one.instances for one in points] == [1, 2, 4]
    assert [one.peak_rps for one in points] == [2162.0, 4061.0, 3135.0]
    efficiency = [1.0, 4061 / (2 * 2162), 3135 / (4 * 2162)]
    assert [one.efficiency for one in points] == pytest.approx(efficiency)
    assert round(points[1].efficiency, 2) == 0.94
    assert points[0].gain_each is None
    assert points[1].gain_each == pytest.approx((4061 - 2162) / 2162)
    assert points[2].gain_each == pytest.approx((3135 - 4061) / 2 / 2162)
    assert [one.knee for one in points] == [False, True, False]


def test_of_equal_rates_the_fewest_instances_are_the_knee() -> None:
    assert [one.knee for one in scaling_of({1: 5.0, 2: 9.0, 3: 9.0})] == [False, True, False]


def test_the_fewest_that_were_measured_stand_for_one() -> None:
    """3 instances of 100 each, then 250 for 6: half of the added ones was lost."""
    first, last = scaling_of({3: 300.0, 6: 450.0})
    assert (first.efficiency, last.efficiency) == (1.0, 0.75)
    assert last.gain_each == 0.5


def test_one_number_of_instances_tells_nothing() -> None:
    assert scaling_of({}) == scaling_of({2: 100.0}) == ()
    assert measured_scaling([server(2, 100.0), server(2, 120.0)]) == {}
    assert measured_scaling([]) == {}


def test_the_rates_are_the_highest_valid_ones_of_profiles() -> None:
    (points,) = measured_scaling([server(count, rps) for count, rps in MEASURED.items()]).values()
    assert points == scaling_of(MEASURED)
    wrong = (point(1, 50.0, 1.0), point(4, 900.0, 2.0, verdict="INVALID"))
    servers = [server(1, 60.0), server(2, 90.0, sweep=wrong), server(2, 80.0)]
    (points,) = measured_scaling(servers).values()
    assert [one.peak_rps for one in points] == [60.0, 80.0]


def test_machines_backends_and_cpus_are_not_mixed() -> None:
    machine = made.profile().machine.model_copy(update={"hostname": "another"})
    for other in ({"machine": machine}, {"backend": "triton"}, {"server_cpus": 2}):
        assert measured_scaling([server(1, 100.0), server(2, 150.0, **other)]) == {}
    both = [server(n, 90.0 * n, **o) for o in ({}, {"machine": machine}) for n in (1, 2)]
    assert sorted(measured_scaling(both)) == [
        "onnxruntime on 1 CPU of another",
        "onnxruntime on 1 CPU of bench",
    ]


def test_a_profile_without_a_valid_point_is_left_out() -> None:
    nothing = server(1, 100.0, sweep=(point(1, 50.0, 1.0, verdict="INVALID"),))
    assert measured_scaling([nothing, server(2, 150.0)]) == {}
