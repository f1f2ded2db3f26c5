"""The rules of a simulated replica, each on a schedule that fits on one hand; times in ns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadtest.capacity import (
    OUTCOMES,
    Balance,
    Fleet,
    Frames,
    Requests,
    Scheduler,
    ServiceSamples,
    Simulation,
    simulate,
    split,
)
from serving.batching import Pending, QueueFullError, RequestQueue
from serving.errors import UsageError
from serving.models.scheduling import DynamicBatching, QueuePolicy

TAKES = ServiceSamples.of({1: [10], 2: [12], 4: [16], 8: [24]})
"""What a batch of that many takes, always."""


def run(
    scheduler: Scheduler, *arrived: int, replicas: int = 1, by: Balance = "round-robin"
) -> Requests:
    fleet = Fleet(TAKES, scheduler, replicas, by)
    return simulate(fleet, np.array(arrived, np.int64), seed=1)


def outcomes(requests: Requests) -> list[str]:
    return [OUTCOMES[one] for one in requests.outcome]


def test_without_batching_each_waits_for_the_one_before() -> None:
    found = run(Scheduler(), 0, 3, 30)
    assert found.started_ns.tolist() == [0, 10, 30]
    assert found.done_ns.tolist() == [10, 20, 40]


def test_two_instances_serve_two_at_once() -> None:
    found = run(Scheduler(instances=2), 0, 3, 4)
    assert found.started_ns.tolist() == [0, 3, 10]


def test_what_waits_leaves_together_up_to_the_largest_batch() -> None:
    found = run(Scheduler(max_batch_size=4), 0, 1, 2, 3, 4, 5)
    assert found.started_ns.tolist() == [0, 10, 10, 10, 10, 26]
    assert found.batch.tolist() == [1, 4, 4, 4, 4, 1]


def test_what_comes_at_one_moment_leaves_together() -> None:
    found = run(Scheduler(max_batch_size=4), 0, 0)
    assert found.batch.tolist() == [2, 2]


def test_a_size_that_was_not_measured_takes_as_long_as_the_next() -> None:
    found = run(Scheduler(max_batch_size=4), 0, 0, 0)
    assert found.done_ns.tolist() == [16, 16, 16]


def test_the_oldest_waits_for_company_no_longer_than_the_delay() -> None:
    found = run(Scheduler(max_batch_size=4, max_queue_delay_ns=5), 0, 3, 7)
    assert found.started_ns.tolist() == [5, 5, 17]
    found = run(Scheduler(max_batch_size=4, max_queue_delay_ns=5), 0, 3, 15)
    assert found.started_ns.tolist() == [5, 5, 20], (
        "its delay had not passed when the rest was done"
    )


def test_a_full_batch_does_not_wait() -> None:
    found = run(Scheduler(max_batch_size=2, max_queue_delay_ns=50), 0, 3)
    assert found.started_ns.tolist() == [3, 3]


def test_a_preferred_size_does_not_wait_and_leaves_the_rest() -> None:
    scheduler = Scheduler(4, preferred_batch_sizes=(2,), max_queue_delay_ns=50)
    assert run(scheduler, 0, 3).started_ns.tolist() == [3, 3]
    found = run(scheduler, 0, 0, 0)
    assert found.batch.tolist() == [2, 2, 1]
    assert found.started_ns.tolist() == [0, 0, 50]


def test_a_full_queue_refuses() -> None:
    found = run(Scheduler(max_queue_size=1), 0, 1, 2, 11)
    assert outcomes(found) == ["ok", "ok", "rejected", "ok"]
    assert found.started_ns.tolist() == [0, 10, -1, 20]
    assert found.done_ns[2] == 2


def test_a_request_past_its_timeout_is_refused() -> None:
    found = run(Scheduler(timeout_ns=6), 0, 1, 5)
    assert outcomes(found) == ["ok", "expired", "ok"]
    assert found.done_ns.tolist() == [10, 7, 20]


def test_or_it_is_served_when_nobody_else_waits() -> None:
    found = run(Scheduler(timeout_ns=6, reject=False), 0, 1, 5, 11)
    assert outcomes(found) == ["ok"] * 4
    assert found.started_ns.tolist() == [0, 20, 10, 30], "the fourth lost its place at 17 too"


def test_round_robin_takes_replicas_in_turn_whatever_they_do() -> None:
    found = run(Scheduler(), 0, 1, 12, 13, replicas=3)
    assert found.replica.tolist() == [0, 1, 2, 0]


def test_least_outstanding_takes_the_one_that_has_been_least_busy_for_the_longest() -> None:
    found = run(Scheduler(), 0, 1, 2, 11, 11, replicas=3, by="least-outstanding")
    assert found.replica.tolist() == [0, 1, 2, 0, 1]
    found = run(Scheduler(), 0, 1, 2, 3, replicas=2, by="least-outstanding")
    assert found.replica.tolist() == [0, 1, 0, 1]


class RealQueue:
    """One replica around ``serving.batching.queue``; a stream has one frame there at a time."""

    def __init__(
        self, scheduler: Scheduler, arrived: Sequence[int], streams: Sequence[int]
    ) -> None:
        policy = QueuePolicy(scheduler.max_queue_size, scheduler.timeout_ns, scheduler.reject)
        sizes = tuple(sorted(scheduler.preferred_batch_sizes))
        batching = DynamicBatching(scheduler.max_queue_delay_ns, sizes, queue=policy)
        self.queue = RequestQueue(scheduler.max_batch_size, batching, limit=1 << 30)
        self.requests = [Pending({}, 1, "same") for _ in arrived]
        self.number = {id(one): at for at, one in enumerate(self.requests)}
        self.streams, self.held = streams, {stream: [] for stream in streams}
        self.sent: set[int] = set()
        self.instances: list[tuple[int, list[int]] | None] = [None] * scheduler.instances
        self.started, self.batches = [-1] * len(arrived), [0] * len(arrived)
        self.ended = ["ok"] * len(arrived)
        self.serve(list(enumerate(arrived)))

    def serve(self, coming: list[tuple[int, int]]) -> None:
        while moments := [at for _, at in coming[:1]] + self.next_moments():
            now = min(moments)
            for at, instance in enumerate(self.instances):
                if instance and instance[0] == now:
                    self.instances[at] = None
                    for number in instance[1]:
                        self.answer(number, now)
            for one in self.queue.expire(now):
                self.ended[self.number[id(one)]] = "expired"
                self.answer(self.number[id(one)], now)
            while coming and coming[0][1] == now:
                self.come(coming.pop(0)[0], now)
            for at, instance in enumerate(self.instances):
                if instance is None and (batch := self.queue.take(now)):
                    self.start(at, [self.number[id(one)] for one in batch], now)

    def next_moments(self) -> list[int]:
        busy = [instance[0] for instance in self.instances if instance]
        due = self.queue.due_ns() if len(busy) < len(self.instances) else None
        return busy + [one for one in (due, self.queue.next_deadline_ns()) if one is not None]

    def come(self, number: int, now: int) -> None:
        stream = self.streams[number]
        if stream in self.sent:
            self.held[stream].append(number)
            return
        try:
            self.queue.push(self.requests[number], now)
        except QueueFullError:
            self.ended[number] = "rejected"
            return
        if stream >= 0:
            self.sent.add(stream)

    def answer(self, number: int, now: int) -> None:
        stream = self.streams[number]
        self.sent.discard(stream)
        while self.held[stream] and stream not in self.sent:
            self.come(self.held[stream].pop(0), now)

    def start(self, at: int, numbers: list[int], now: int) -> None:
        self.instances[at] = now + int(TAKES.times_ns(len(numbers))[0]), numbers
        for number in numbers:
            self.started[number], self.batches[number] = now, len(numbers)


SCHEDULERS = st.integers(1, 8).flatmap(
    lambda largest: st.builds(
        Scheduler,
        max_batch_size=st.just(largest),
        preferred_batch_sizes=st.sets(st.integers(1, largest), max_size=2).map(tuple),
        max_queue_delay_ns=st.integers(0, 20),
        instances=st.integers(1, 3),
        max_queue_size=st.sampled_from((0, 2, 5)),
        timeout_ns=st.sampled_from((0, 7, 15, 40)),
        reject=st.booleans(),
    )
)


GAPS = st.lists(st.integers(0, 6), min_size=1, max_size=30)


def assert_same(found: Requests, real: RealQueue) -> None:
    assert outcomes(found) == real.ended
    assert found.started_ns.tolist() == real.started
    assert found.batch.tolist() == real.batches


@settings(max_examples=150, deadline=None)
@given(SCHEDULERS, GAPS)
def test_batches_leave_as_they_leave_our_server(scheduler: Scheduler, gaps: list[int]) -> None:
    arrived = np.cumsum(gaps)
    real = RealQueue(scheduler, arrived.tolist(), [-1] * len(gaps))
    assert_same(run(scheduler, *arrived), real)


@settings(max_examples=150, deadline=None)
@given(SCHEDULERS, GAPS, st.randoms(use_true_random=False))
def test_so_do_the_frames_of_streams(scheduler: Scheduler, gaps: list[int], random: Random) -> None:
    # What expires makes room for the next frame of its stream; a limit would ask which is first.
    scheduler = replace(scheduler, max_queue_size=0)
    arrived, streams = np.cumsum(gaps), [random.randrange(5) for _ in gaps]
    fleet = Fleet(TAKES, scheduler, frames=Frames())
    found = simulate(fleet, arrived, seed=1, streams=np.array(streams, np.int32))
    assert_same(found, RealQueue(scheduler, arrived.tolist(), streams))


def busy_fleet(by: Balance = "least-outstanding", frames: Frames | None = None) -> Fleet:
    times = np.random.default_rng(1).lognormal(12, 0.5, 200)
    service = ServiceSamples.of({1: times, 4: 2 * times})
    scheduler = Scheduler(4, (2,), 50_000, instances=2, max_queue_size=6, timeout_ns=900_000)
    if frames and frames.policy != "fifo":
        scheduler = Scheduler(4, (2,), 50_000, instances=2, max_queue_size=6)
    return Fleet(service, scheduler, 7, by, frames)


def times(count: int, mean_ns: float = 6_000.0) -> np.ndarray:
    return np.cumsum(np.random.default_rng(2).exponential(mean_ns, count)).astype(np.int64)


def same(one: Requests, other: Requests) -> bool:
    return all(
        np.array_equal(a, b) for a, b in zip(vars(one).values(), vars(other).values(), strict=True)
    )


def streams_of(count: int) -> np.ndarray:
    return np.random.default_rng(3).integers(0, 40, count).astype(np.int32)


POLICIES = (None, Frames(), Frames("drop-late", 400_000), Frames("latest-only"))


@pytest.mark.parametrize("chunk", [1, 7, 1000])
@pytest.mark.parametrize("frames", POLICIES, ids=str)
def test_the_answer_does_not_depend_on_chunks(chunk: int, frames: Frames | None) -> None:
    fleet, arrived = busy_fleet(frames=frames), times(3_000) // 1000 * 1000
    streams = streams_of(3_000) if frames else None
    whole = simulate(fleet, arrived, seed=5, streams=streams)
    assert same(whole, simulate(fleet, arrived, seed=5, streams=streams, chunk=chunk))
    assert not same(whole, simulate(fleet, arrived, seed=6, streams=streams))


@pytest.mark.parametrize("frames", POLICIES, ids=str)
def test_every_request_ends_once(frames: Frames | None) -> None:
    simulation = Simulation(busy_fleet(frames=frames), 1)
    parts = [
        simulation.feed(part, streams_of(len(part)) if frames else None)
        for part in np.array_split(times(3_000), 9)
    ]
    parts.append(simulation.finish())
    assert sorted(np.concatenate([one.index for one in parts])) == list(range(3_000))
    dropping = frames is not None and frames.policy != "fifo"
    assert not dropping or any("dropped" in outcomes(one) for one in parts)
    with pytest.raises(UsageError):
        simulation.feed(times(1), streams_of(1) if frames else None)


def test_least_outstanding_never_takes_one_with_more_than_another() -> None:
    found = simulate(busy_fleet(), times(2_000), seed=1)
    for number in range(500, 2_000, 10):
        now, before = found.arrived_ns[number], slice(0, number)
        there = found.replica[before][found.done_ns[before] > now]
        counts = np.bincount(there, minlength=7)
        assert counts[found.replica[number]] == counts.min()


def test_least_outstanding_waits_less_than_round_robin() -> None:
    service = ServiceSamples.of({1: np.random.default_rng(1).lognormal(12, 0.5, 200)})
    load = 0.8
    arrived = times(20_000, service.mean_ns(1) / 7 / load)
    turns, least = (
        simulate(Fleet(service, Scheduler(), 7, by), arrived, seed=1)
        for by in ("round-robin", "least-outstanding")
    )
    assert least.waited_ns.mean() < 0.7 * turns.waited_ns.mean()


def test_progress_is_told_after_each_chunk() -> None:
    told: list[int] = []
    simulate(busy_fleet(), times(25), seed=1, chunk=10, progress=told.append)
    assert told == [10, 20, 25]


def test_what_waits_has_room_however_much_it_is() -> None:
    """Nobody is served before the last came, and memory grew on the way."""
    fleet = Fleet(ServiceSamples.of({1: [1_000_000]}), Scheduler())
    found = simulate(fleet, np.arange(5_000), seed=1, chunk=100)
    assert found.started_ns.tolist() == [1_000_000 * number for number in range(5_000)]


def test_shards_are_the_fleet_in_parts_with_seeds_of_their_own() -> None:
    parts = split(busy_fleet(), 3, seed=1)
    assert [part.fleet.replicas for part in parts] == [3, 2, 2]
    assert sum(part.share for part in parts) == pytest.approx(1)
    first, second = (simulate(part.fleet, times(200), part.seed) for part in parts[1:])
    assert not same(first, second)
    again = split(busy_fleet(), 3, seed=1)[1]
    assert same(first, simulate(again.fleet, times(200), again.seed))


def test_draws_are_the_measured_times_each_as_often() -> None:
    fleet = Fleet(ServiceSamples.of({1: [30, 10, 20]}), Scheduler())
    found = simulate(fleet, np.arange(0, 90_000 * 100, 100), seed=1)
    values, counts = np.unique(found.took_ns, return_counts=True)
    assert values.tolist() == [10, 20, 30]
    # Five standard deviations of a binomial count.
    assert np.all(abs(counts - 30_000) < 5 * np.sqrt(90_000 * 2 / 9))


@pytest.mark.parametrize(
    "refused",
    [
        lambda: ServiceSamples.of({}),
        lambda: ServiceSamples.of({1: []}),
        lambda: ServiceSamples.of({0: [1]}),
        lambda: ServiceSamples.of({1: [0]}),
        lambda: Fleet(TAKES, Scheduler(max_batch_size=9)),
        lambda: Fleet(TAKES, Scheduler(), replicas=0),
        lambda: Fleet(TAKES, Scheduler(timeout_ns=1), frames=Frames("latest-only")),
        lambda: Scheduler(instances=0),
        lambda: Scheduler(4, preferred_batch_sizes=(5,)),
        lambda: Scheduler(max_queue_delay_ns=-1),
        lambda: Frames("drop-late"),
        lambda: split(Fleet(TAKES, Scheduler(), replicas=2), 3, 1),
        lambda: run(Scheduler(), 5, 4),
        lambda: simulate(Fleet(TAKES, Scheduler(), frames=Frames()), np.arange(3), 1),
    ],
)
def test_what_cannot_be_simulated_is_refused_with_the_next_step(refused) -> None:
    with pytest.raises(UsageError) as error:
        refused()
    assert error.value.hint


def test_an_idle_instance_takes_the_times_after_a_rest() -> None:
    service = ServiceSamples.of({1: [10], 2: [15]}).after_rest(np.array([12]))
    fleet = Fleet(service, Scheduler(max_batch_size=2))
    found = simulate(fleet, np.array([0, 1, 2, 40]), seed=1)
    assert found.done_ns.tolist() == [12, 27, 27, 52]
    assert service.filled(2).rested is not None
