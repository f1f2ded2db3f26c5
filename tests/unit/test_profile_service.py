"""Service times from the ends of requests, held against a server whose times are known."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from loadtest.profiles.service import (
    FEWEST,
    Loop,
    OpenLoop,
    Service,
    loop_users,
    may_rest,
    service_of,
    with_open,
)
from tests.sample_profile import MS, Takes, closed_loop

LARGEST = 8
REPLIES_NS = 0.3 * MS


def linear(size: int, rng: np.random.Generator) -> float:
    """4 ms a batch and 2 ms a row, within 5%."""
    return (4 + 2 * size) * MS * float(rng.uniform(0.95, 1.05))


def loops(*users: int, replies_ns: float = REPLIES_NS) -> list[Loop]:
    return [
        closed_loop(count, linear, largest=LARGEST, replies_ns=replies_ns, seed=count)[0]
        for count in users
    ]


def batched(*users: int, replies_ns: float = REPLIES_NS) -> Service:
    return service_of(loops(*users, replies_ns=replies_ns), instances=1, largest=LARGEST)


def test_every_batch_size_has_the_mean_that_it_was_served_with() -> None:
    service = batched(*range(2, LARGEST + 2), 2 * LARGEST)
    assert service.clear
    assert sorted(service.times_ns) == list(range(1, LARGEST + 1))
    for size, times in service.times_ns.items():
        assert times.mean() == pytest.approx((4 + 2 * size) * MS, rel=0.01), size
        assert len(times) >= 1000


def test_the_spread_of_a_batch_size_is_that_of_its_service() -> None:
    """Uniform within 5% has a deviation of 0.05 / sqrt(3)."""
    times = batched(2, 9).times_ns[8]
    assert times.std() == pytest.approx(20 * MS * 0.05 / 3**0.5, rel=0.05)


def test_a_loop_of_one_more_user_alternates_between_one_row_and_the_rest() -> None:
    service = batched(2, 5)
    assert sorted(service.times_ns) == [1, 4]
    assert len(service.times_ns[4]) == pytest.approx(2000, abs=2)


def test_the_batches_that_the_window_cuts_count_for_nothing() -> None:
    single, whole = loops(2, LARGEST + 1)
    cut = Loop(whole.users, whole.due_ns[3:-3], whole.done_ns[3:-3])
    service = service_of([single, cut], instances=1, largest=LARGEST)
    assert sorted(service.times_ns) == [1, LARGEST], "no batch of 5 or 6 was served"


def test_replies_that_take_as_long_as_a_service_are_refused() -> None:
    """A batch of one takes 6 ms; gaps of 1 to 5 ms are neither within a batch nor between two."""
    assert batched(2, 9, replies_ns=0.5 * MS).clear
    assert not batched(2, 9, 16, replies_ns=12 * MS).clear


def test_the_loop_that_tells_the_shortest_service_must_be_there() -> None:
    assert batched(9, 16).times_ns == {}


def test_a_size_seen_too_rarely_counts_as_not_measured() -> None:
    few, _ = closed_loop(5, linear, largest=LARGEST, batches=2 * FEWEST)
    service = service_of([*loops(2), few], instances=1, largest=LARGEST)
    assert sorted(service.times_ns) == [1], "of the batches of 4 the window cut the last"


def chancy(_: int, rng: np.random.Generator) -> float:
    """10 ms, with a deviation of half of that."""
    return float(rng.gamma(4, 2.5 * MS))


@pytest.mark.parametrize("takes", [linear, chancy])
@pytest.mark.parametrize("instances", [1, 2, 3])
def test_without_batching_mean_and_spread_are_those_of_one_instance(
    instances: int, takes: Takes
) -> None:
    """Over all of them the mean is also the instances over the throughput, by Little's law."""
    whole, true = closed_loop(4 * instances, takes, instances=instances)
    inside = whole.due_ns >= 1e9
    loop = Loop(whole.users, whole.due_ns[inside], whole.done_ns[inside])
    service = service_of([loop], instances=instances, largest=1)
    assert service.blurred == 0.0
    (times,) = service.times_ns.values()
    span_ns = loop.done_ns.max() - loop.done_ns.min()
    assert times.mean() == pytest.approx(instances * span_ns / len(loop.done_ns), rel=0.01)
    assert times.mean() == pytest.approx(true[1].mean(), rel=0.01)
    assert times.min() >= true[1].min() - 1
    assert times.max() <= true[1].max() + 1
    for quantile in (0.05, 0.5, 0.95, 0.99):
        expected = np.quantile(true[1], quantile)
        assert np.quantile(times, quantile) == pytest.approx(expected, rel=0.02), quantile


def test_a_lost_request_spoils_none_but_its_neighbours() -> None:
    loop, true = closed_loop(8, chancy, instances=2)
    kept = np.delete(np.arange(len(loop.done_ns)), [1000, 2000, 3000])
    holey = Loop(8, loop.due_ns[kept], loop.done_ns[kept])
    times = service_of([holey], instances=2, largest=1).times_ns[1]
    assert times.mean() == pytest.approx(true[1].mean(), rel=0.02)


def test_requests_that_are_served_out_of_turn_are_refused() -> None:
    """The newest first: most were answered before their turn would have come."""
    loop, _ = closed_loop(16, linear, instances=2)
    shuffled = np.random.default_rng(1).permutation(loop.due_ns)
    assert not service_of([Loop(16, shuffled, loop.done_ns)], instances=2, largest=1).clear


def test_loops_in_which_an_instance_may_rest_are_left_out() -> None:
    """Two users on two instances with a pause of their own look like a slower server."""
    moments = np.arange(0, 4000 * MS, 50 * MS)
    pausing = Loop(2, moments - 20 * MS, moments)
    busy, _ = closed_loop(8, linear, instances=2)
    with_both = service_of([pausing, busy], instances=2, largest=1).times_ns[1]
    assert with_both.mean() == pytest.approx(6 * MS, rel=0.01)


def test_a_queue_that_waits_as_long_as_a_service_lets_instances_rest() -> None:
    """A lone request takes the delay and a service of 6 ms; the users of a loop then wait too."""
    for delay_ms, rests in ((0.0, False), (1.0, False), (6.0, True), (20.0, True)):
        alone_ns = np.full(30, round((delay_ms + 6) * MS))
        assert may_rest(alone_ns, round(delay_ms * MS)) == rests, delay_ms


def test_nothing_measured_is_no_service_and_no_error() -> None:
    nothing = Loop(4, np.zeros(0, np.int64), np.zeros(0, np.int64))
    for instances, largest in ((1, 1), (1, LARGEST), (2, 1), (2, LARGEST)):
        for given in ([nothing], []):
            service = service_of(given, instances=instances, largest=largest)
            assert service.times_ns == {}


@pytest.mark.parametrize(("instances", "largest"), [(1, 1), (2, 1), (1, 8), (1, 6), (1, 32)])
def test_the_loops_of_a_profile_are_one_user_single_rows_and_a_full_server(
    instances: int, largest: int
) -> None:
    users = loop_users(instances=instances, largest=largest)
    assert list(users) == sorted(set(users))
    assert {1, instances + 1, (largest + 1) * instances, 2 * largest * instances} <= set(users)
    assert len(users) >= 4, "fewer points fit no law of scalability"
    assert all(after <= 2 * before for before, after in pairwise(users[1:]))


IDLE_NS = 0.7 * MS
"""What an idle server takes longer for a request."""


def open_loop(rate_rps: float, *, largest: int, instances: int = 1, count: int = 6000) -> OpenLoop:
    """Poisson arrivals on a server in virtual time that takes what waits when it is free."""
    rng = np.random.default_rng(int(rate_rps))
    due_ns = np.cumsum(rng.exponential(1e9 / rate_rps, count))
    done_ns = np.zeros(count)
    free = [0.0] * instances
    first = 0
    while first < count:
        now_ns = min(free)
        idle = due_ns[first] >= now_ns
        now_ns = max(now_ns, due_ns[first])
        waiting = int(np.searchsorted(due_ns, now_ns, side="right")) - first
        size = min(max(waiting, 1), largest)
        ends_ns = now_ns + linear(size, rng) + (IDLE_NS if idle else 0.0)
        done_ns[first : first + size] = ends_ns
        free[free.index(min(free))] = ends_ns
        first += size
    return OpenLoop(due_ns.astype(np.int64), done_ns.astype(np.int64))


@pytest.mark.parametrize("loads", [(60.0, 200.0, 330.0)])
def test_open_loops_tell_every_size_and_what_an_idle_server_takes(loads: tuple[float, ...]) -> None:
    closed = Service({1: np.full(99, round(6.5 * MS)), 8: np.full(99, round(22 * MS))}, 0.0)
    given = [open_loop(rate, largest=LARGEST) for rate in loads]
    service = with_open(closed, given, instances=1, largest=LARGEST)
    assert sorted(service.times_ns) == list(range(1, LARGEST + 1))
    for size, times in service.times_ns.items():
        assert times.mean() == pytest.approx((4 + 2 * size) * MS, rel=0.01), size
    assert service.idle_ns.mean() == pytest.approx(6 * MS + IDLE_NS, rel=0.01)


@pytest.mark.parametrize("instances", [1, 2, 3])
def test_without_batching_an_open_loop_is_told_apart_by_who_had_to_wait(instances: int) -> None:
    closed = Service({1: np.full(99, round(6.5 * MS))}, 0.0)
    loop = open_loop(100.0 * instances, largest=1, instances=instances)
    service = with_open(closed, [loop], instances=instances, largest=1)
    assert service.times_ns[1].mean() == pytest.approx(6 * MS, rel=0.01)
    assert service.idle_ns.mean() == pytest.approx(6 * MS + IDLE_NS, rel=0.01)


def test_sizes_that_no_open_loop_shows_keep_what_closed_ones_told() -> None:
    closed = Service({1: np.full(99, 6_000_000), 8: np.full(99, 21_000_000)}, 0.0)
    service = with_open(closed, [open_loop(20.0, largest=8)], instances=1, largest=8)
    assert service.times_ns[8].tolist() == [21_000_000] * 99
    assert with_open(closed, [], instances=1, largest=8).times_ns[1].tolist() == [6_000_000] * 99
