"""What one profiled server comes to: usable rates from its sweep, and what is simulated of it."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.plan.server import Server, Usable, replicas_for, usable_of
from loadtest.profiles.record import SweepPoint
from serving.errors import UsageError
from tests import sample_profile as made
from tests.sample_profile import MS, constant_ns, exponential_ns, point

RATES = (60.0, 120.0, 180.0, 200.0, 205.0)
P95_MS = (20.0, 22.0, 45.0, 300.0, 900.0)
LIMIT_MS, MOST_FAILED = 50.0, 0.001


def sweep() -> tuple[SweepPoint, ...]:
    """The sweep of K3; by Little's law users are rate times mean response time."""
    return tuple(
        point(max(round(rate * ms / 1e3), 1), rate, ms, failed_share=0.03 if rate == 205 else 0.0)
        for rate, ms in zip(RATES, P95_MS, strict=True)
    )


def usable(points: tuple[SweepPoint, ...], limit_ms: float = LIMIT_MS) -> Usable:
    return usable_of(points, "p95", limit_ms, MOST_FAILED)


def test_usable_is_the_highest_rate_within_the_objective_and_not_the_peak() -> None:
    found = usable(sweep())
    assert found.usable_rps == 180.0
    assert found.peak_rps == 200.0, "the point at 205 fails too often to be believed"
    assert found.smallest_ms == 20.0


def test_replicas_follow_from_usable_and_headroom() -> None:
    """1000 / (180 x 0.7) is 7.94, and 1000 / 180 is 5.56."""
    assert replicas_for(1000, 180, 0.3) == 8
    assert replicas_for(1000, 180, 0.0) == 6


@pytest.mark.parametrize(("rate_rps", "headroom", "replicas"), [(540, 0, 3), (378, 0.3, 3)])
def test_a_whole_quotient_needs_no_replica_more(
    rate_rps: float, headroom: float, replicas: int
) -> None:
    """378 / (180 x (1 - 0.3)) is 3 and a rounding error in binary."""
    assert replicas_for(rate_rps, 180, headroom) == replicas
    assert replicas_for(rate_rps + 1, 180, headroom) == replicas + 1
    assert replicas_for(0.001, 180, headroom) == 1


def test_no_point_that_meets_the_objective_is_no_number() -> None:
    found = usable(sweep(), limit_ms=19.0)
    assert found.usable_rps is None
    assert found.smallest_ms == 20.0
    assert usable(()) == Usable(None, 0.0, None)


@pytest.mark.parametrize(
    "changes",
    [
        {"verdict": "INVALID", "reasons": ("client-bound",)},
        {"failed_share": 0.0011},
        {"response_time_ms": point(1, 1, None).response_time_ms},
    ],
)
def test_a_point_that_cannot_be_believed_is_no_candidate(changes: dict[str, object]) -> None:
    better = point(5, 190.0, 25.0).model_copy(update=changes)
    assert usable((*sweep(), better)).usable_rps == 180.0
    assert usable((*sweep(), point(5, 190.0, 25.0))).usable_rps == 190.0
    assert usable((better,)) == Usable(None, 0.0, None)


def test_a_percentile_that_a_time_limit_cut_meets_nothing() -> None:
    quantile = point(1, 1, 40.0).response_time_ms.p95
    assert quantile is not None
    cut = quantile.model_copy(update={"at_least": True})
    times = point(1, 1, 40.0).response_time_ms.model_copy(update={"p95": cut})
    assert usable((*sweep(), point(5, 190.0, 40.0, response_time_ms=times))).usable_rps == 180.0


def test_the_percentile_is_the_one_that_was_asked_for() -> None:
    only = point(1, 100.0, None).model_copy(
        update={
            "response_time_ms": point(1, 1, 30.0).response_time_ms.model_copy(update={"p99": None})
        }
    )
    assert usable_of((only,), "p99.9", 50.0, 0.0).usable_rps == 100.0
    assert usable_of((only,), "p99", 50.0, 0.0).usable_rps is None


def test_what_passes_between_two_points_is_not_promised() -> None:
    """A line from (180, 45 ms) to (200, 300 ms) would cross 50 ms at 180.4."""
    assert usable(sweep(), limit_ms=299.0).usable_rps == 180.0


def test_sizes_between_measured_ones_are_filled_and_none_beyond() -> None:
    """20 ms for 2 rows and 40 ms for 6: a line in between, nothing above the largest."""
    times = {1: constant_ns(15 * MS), 2: constant_ns(20 * MS), 6: constant_ns(40 * MS)}
    (start,) = Server.of(made.profile(times)).starts
    means = {size: start.service.mean_ns(size) / MS for size in start.service.per_batch}
    assert means == {1: 15.0, 2: 20.0, 3: 25.0, 4: 30.0, 5: 35.0, 6: 40.0}
    with pytest.raises(UsageError, match="largest measured one is 6"):
        start.service.mean_ns(7)


def test_a_server_is_not_planned_with_batches_that_were_not_measured() -> None:
    times = {1: constant_ns(15 * MS), 4: constant_ns(20 * MS)}
    server = Server.of(made.profile(times, configuration=made.configuration(largest=8)))
    with pytest.raises(UsageError, match="the largest measured one is 4"):
        _ = server.saturated_rps


def test_the_rates_of_more_instances_are_measured_and_not_multiplied() -> None:
    """K2: 1, 2 and 4 processes on two CPUs answered 2162, 4061 and 3135 requests/s."""
    measured = {1: 2162.0, 2: 4061.0, 4: 3135.0}
    found = {}
    for instances, rps in measured.items():
        service = {1: constant_ns(instances / rps * 1e9)}
        found[instances] = Server.of(made.profile(service, instances=instances)).saturated_rps
    assert found == pytest.approx(measured, rel=1e-6)
    assert max(found, key=found.__getitem__) == 2


def test_saturation_is_that_of_the_best_batch_size() -> None:
    """2 in 20 ms are 100 per second, 4 in 50 ms but 80."""
    times = {1: constant_ns(15 * MS), 2: constant_ns(20 * MS), 4: constant_ns(50 * MS)}
    assert Server.of(made.profile(times)).saturated_rps == pytest.approx(100.0)


def test_saturation_is_the_middle_of_the_starts() -> None:
    starts = tuple(made.repeat({1: constant_ns(ms * MS)}) for ms in (10, 8, 12.5))
    assert Server.of(made.profile(repeats=starts)).saturated_rps == pytest.approx(100.0)


def test_what_a_lone_request_takes_besides_its_service_delays_every_request() -> None:
    (start,) = Server.of(made.profile({1: exponential_ns(10 * MS)}, delay_ns=3 * MS)).starts
    assert start.delay_ns == pytest.approx(3 * MS, rel=1e-6)


def test_a_lone_request_that_is_quicker_than_under_load_has_no_negative_delay() -> None:
    quick = made.repeat({1: constant_ns(10 * MS)}, alone_ns=constant_ns(9 * MS))
    (start,) = Server.of(made.profile(repeats=(quick,))).starts
    assert start.delay_ns == 0


@pytest.mark.parametrize(("preferred", "queued_ms"), [((), 4), ((1, 2), 0)])
def test_the_wait_for_company_is_not_counted_twice(
    preferred: tuple[int, ...], queued_ms: int
) -> None:
    """It is simulated; a lone request has waited for all of it, unless one is worth leaving."""
    service = {1: constant_ns(10 * MS), 2: constant_ns(15 * MS)}
    text = made.configuration(largest=2, delay_us=4000, preferred=preferred)
    alone = made.repeat(service, delay_ns=(1 + queued_ms) * MS)
    server = Server.of(made.profile(service, repeats=(alone,), configuration=text))
    assert server.scheduler.max_queue_delay_ns == 4 * MS
    assert server.starts[0].delay_ns == 1 * MS


def test_the_rules_of_the_queue_reach_the_simulation() -> None:
    queue = "max_queue_size: 64 default_timeout_microseconds: 20000 timeout_action: DELAY"
    text = made.configuration(largest=2, delay_us=10, preferred=(2,), queue=queue)
    service = {1: constant_ns(10 * MS), 2: constant_ns(15 * MS)}
    scheduler = Server.of(made.profile(service, configuration=text)).scheduler
    assert (scheduler.max_queue_size, scheduler.timeout_ns) == (64, 20 * MS)
    assert (scheduler.reject, scheduler.preferred_batch_sizes) == (False, (2,))


def test_no_plan_can_be_quicker_than_one_user_alone() -> None:
    """Of all starts: the quantile of an exponential is -mean ln(1 - q), and 3 ms more."""
    starts = tuple(made.repeat({1: exponential_ns(10 * MS)}, delay_ns=3 * MS) for _ in range(2))
    quickest_ms = Server.of(made.profile(repeats=starts)).quickest_ms(0.99)
    assert quickest_ms == pytest.approx(3 + 10 * -np.log(0.01), rel=0.01)
