"""Camera streams: when frames come, which are dropped, and what is told of them; times in ns."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from loadtest.capacity import (
    OUTCOMES,
    Cameras,
    Fleet,
    Frames,
    Requests,
    Scheduler,
    ServiceSamples,
    report,
    simulate,
)
from serving.errors import UsageError

SECOND_NS = 1_000_000_000


def run(
    frames: Frames,
    *arrived: tuple[int, int],
    replicas: int = 1,
    scheduler: Scheduler | None = None,
) -> Requests:
    """``arrived``: moment and stream; a frame takes 10 ns, two together 15."""
    service = ServiceSamples.of({1: [10], 2: [15]})
    fleet = Fleet(service, scheduler or Scheduler(), replicas, frames=frames)
    times, streams = np.array(arrived).T
    return simulate(fleet, times, seed=1, streams=streams.astype(np.int32))


def fates(requests: Requests) -> list[int | str]:
    """When each frame was started, or why it was not."""
    return [
        int(started) if OUTCOMES[outcome] == "ok" else OUTCOMES[outcome]
        for started, outcome in zip(requests.started_ns, requests.outcome, strict=True)
    ]


def test_fifo_serves_every_frame_and_a_stream_waits_for_its_answer() -> None:
    found = run(Frames(), (0, 0), (4, 0), (5, 1), (8, 0), replicas=2)
    assert fates(found) == [0, 10, 5, 20]
    assert found.done_ns.tolist() == [10, 20, 15, 30]


def test_without_order_frames_of_a_stream_are_served_side_by_side() -> None:
    found = run(Frames(in_order=False), (0, 0), (4, 0), (8, 0), replicas=2)
    assert fates(found) == [0, 4, 10]


def test_frames_of_one_stream_are_in_no_batch_together() -> None:
    scheduler = Scheduler(max_batch_size=2)
    frames = (0, 0), (0, 0), (1, 1), (1, 0)
    assert run(Frames(), *frames, scheduler=scheduler).batch.tolist() == [1, 2, 2, 1]
    unordered = run(Frames(in_order=False), *frames, scheduler=scheduler)
    assert unordered.batch.tolist() == [2, 2, 2, 2]


def test_a_late_frame_is_dropped_when_its_turn_comes() -> None:
    found = run(Frames("drop-late", 10), (0, 0), (1, 0), (9, 0), (20, 0))
    assert fates(found) == [0, 10, "dropped", 20], (
        "the third is 11 ns old at 20, when it could start"
    )
    assert found.done_ns[2] == 20


def test_late_frames_of_others_are_dropped_on_the_way() -> None:
    frames = (0, 0), (1, 1), (2, 2), (8, 3)
    assert fates(run(Frames("drop-late", 9), *frames)) == [0, "dropped", 10, "dropped"]
    # 1 and 2 are 11 and 10 ns old at 12, when 0 has come through two places.
    twice = run(Frames("drop-late", 8, in_order=False), *frames)
    assert fates(twice) == [0, "dropped", "dropped", 10]


def test_the_latest_frame_takes_the_place_of_the_one_that_waits() -> None:
    found = run(Frames("latest-only"), (0, 2), (1, 0), (2, 1), (3, 0))
    assert fates(found) == [0, "dropped", 20, 10]
    assert found.done_ns[1] == 3


def test_what_was_sent_to_a_server_is_out_of_the_reach_of_its_camera() -> None:
    frames = Frames("latest-only", in_queue=False)
    found = run(frames, (0, 2), (1, 0), (3, 0), (5, 0), (6, 1))
    assert fates(found) == [0, 10, "dropped", 30, 20]
    late = run(Frames("drop-late", 5, in_queue=False), (0, 0), (1, 1), (2, 0))
    assert fates(late) == [0, 10, "dropped"]


@pytest.mark.parametrize("in_order", [True, False])
def test_no_two_frames_of_a_stream_ever_wait_at_once(in_order: bool) -> None:
    service = ServiceSamples.of({1: np.random.default_rng(1).exponential(1_500_000, 99) + 1})
    frames = Frames("latest-only", in_order=in_order)
    fleet = Fleet(service, Scheduler(instances=2), 3, "least-outstanding", frames)
    times, streams = Cameras(40, 120, jitter_ns=8_000_000).all_arrivals(100, seed=2)
    found = simulate(fleet, times, seed=3, streams=streams)
    left_ns = np.where(found.ok, found.started_ns, found.done_ns)
    assert found.count("dropped") > 100
    for stream in range(40):
        mine = found.stream == stream
        assert np.all(found.arrived_ns[mine][1:] >= left_ns[mine][:-1])


@pytest.mark.parametrize("in_order", [True, False])
def test_one_frame_of_a_stream_waits_at_most(in_order: bool) -> None:
    found = run(Frames("latest-only", in_order=in_order), (0, 0), (1, 0), (2, 0), (9, 0), (12, 0))
    assert fates(found) == [0, "dropped", "dropped", 10, 20]


def test_a_batch_does_not_wait_longer_because_a_frame_was_replaced() -> None:
    scheduler = Scheduler(max_batch_size=2, max_queue_delay_ns=6)
    found = run(Frames("latest-only"), (0, 0), (5, 0), scheduler=scheduler)
    assert fates(found) == ["dropped", 6]


def test_a_frame_that_a_full_queue_refused_does_not_stop_its_stream() -> None:
    scheduler = Scheduler(max_queue_size=1)
    found = run(Frames(), (0, 0), (1, 1), (2, 2), (3, 2), (11, 2), scheduler=scheduler)
    assert fates(found) == [0, 10, "rejected", "rejected", 20]


def test_a_frame_that_expired_does_not_stop_its_stream() -> None:
    found = run(Frames(), (0, 0), (1, 1), (2, 1), (40, 1), scheduler=Scheduler(timeout_ns=6))
    assert fates(found) == [0, "expired", 10, 40], (
        "the second was sent when the first expired, at 7"
    )


@pytest.mark.parametrize(
    "frames", [Frames(), Frames("drop-late", 3_000_000), Frames("latest-only")], ids=str
)
def test_frames_of_a_stream_are_answered_in_their_order(frames: Frames) -> None:
    service = ServiceSamples.of({1: np.random.default_rng(1).exponential(1_500_000, 99) + 1})
    fleet = Fleet(service, Scheduler(instances=2), 3, "least-outstanding", frames)
    times, streams = Cameras(40, 90, jitter_ns=9_000_000).all_arrivals(100, seed=2)
    found = simulate(fleet, times, seed=3, streams=streams)
    for stream in range(40):
        mine = (found.stream == stream) & found.ok
        assert np.all(found.started_ns[mine][1:] >= found.done_ns[mine][:-1])


def test_cameras_of_random_phase_keep_their_phase() -> None:
    times, streams = Cameras(5, 20).all_arrivals(30, seed=1)
    phases = [times[streams == stream][0] for stream in range(5)]
    assert len(set(phases)) == 5
    assert max(phases) < SECOND_NS / 20
    for stream, phase in enumerate(phases):
        wanted = phase + np.arange(30) * SECOND_NS // 20
        assert np.abs(times[streams == stream] - wanted).max() <= 1


def test_synchronised_cameras_come_together() -> None:
    times, streams = Cameras(3, 10, "synchronised").all_arrivals(2, seed=1)
    assert times.tolist() == [0, 0, 0, 10**8, 10**8, 10**8]
    assert streams.tolist() == [0, 1, 2] * 2


def test_jitter_makes_frames_late_and_keeps_their_order() -> None:
    jitter_ns = SECOND_NS // 25
    cameras = Cameras(8, 25, "synchronised", jitter_ns)
    times, streams = cameras.all_arrivals(200, seed=1)
    late_ns = times[streams == 3] - np.arange(200) * jitter_ns
    assert np.all(np.diff(times[streams == 3]) >= 0)
    assert 0 <= late_ns.min() < late_ns.mean() < late_ns.max() <= jitter_ns
    # Uniform: the mean of 200 lies within four standard errors of the middle.
    assert abs(late_ns.mean() / jitter_ns - 0.5) < 4 / np.sqrt(12 * 200)


def test_chunks_of_frames_are_the_schedule_in_pieces() -> None:
    cameras = Cameras(7, 30, jitter_ns=30_000_000)
    whole = cameras.all_arrivals(60, seed=4)
    chunks = list(cameras.arrivals(60, seed=4, at_once=14))
    assert len(chunks) == 30
    times, streams = (np.concatenate(part) for part in zip(*chunks, strict=True))
    assert np.array_equal(times, whole[0])
    assert np.array_equal(streams, whole[1])
    assert np.all(np.diff(whole[0]) >= 0)


def test_a_report_tells_what_each_stream_got() -> None:
    found = run(Frames("drop-late", 12), (0, 0), (15, 1), (16, 1), (30, 0), (31, 1), (85, 0))
    assert fates(found) == [0, 15, 25, 35, "dropped", 85]
    told = report(found, 3, (0, 100), deadline_ns=12)
    first, second, third = told.streams
    # Stream 0 has answers at 10, 45 and 95, after 10, 15 and 10; stream 1 at 25 and 35.
    assert (first.frames, first.dropped, first.missed) == (3, 0, 1)
    assert first.delivered_fps == 3 / 100 * SECOND_NS
    assert first.longest_gap_ns == 95 - 45
    assert (second.frames, second.dropped, second.missed) == (3, 1, 2)
    assert second.longest_gap_ns == 100 - 35
    assert (third.frames, third.delivered_fps, third.longest_gap_ns) == (0, 0, 100)
    assert told.together.frames == 6
    assert told.together.missed == 3
    assert told.together.longest_gap_ns == 100
    assert told.together.age_p99_ns is None, "six frames have no 99th percentile"


def test_frames_count_by_when_they_came_and_answers_by_when_they_were_given() -> None:
    found = run(Frames("latest-only"), (0, 0), (1, 0), (2, 0), (50, 0))
    told = report(found, 1, (1, 50)).streams[0]
    assert (told.frames, told.dropped, told.missed) == (2, 1, None)
    assert told.delivered_fps == 2 / 49 * SECOND_NS, "at 10 and 20"
    assert told.longest_gap_ns == 50 - 20


def test_ages_are_nearest_ranks() -> None:
    ages = np.arange(1, 1_001) * 1_000
    template = run(Frames(), (0, 0))
    times = np.arange(1_000) * 10**7
    found = replace(
        template,
        arrived_ns=times,
        done_ns=times + ages,
        outcome=np.zeros(1_000, np.int8),
        stream=np.zeros(1_000, np.int32),
    )
    told = report(found, 1, (0, 10**10)).together
    assert (told.age_p50_ns, told.age_p99_ns) == (500_000, 990_000)


def test_random_phases_wait_far_less_than_synchronised_and_those_less_than_poisson() -> None:
    """At equal utilisation, of one server at 90% and eight cameras: 1 ms a frame."""
    service = ServiceSamples.of({1: [1_000_000]})
    fps, frames, p99 = 0.9 / 8 / 1e-3, 5_000, {}
    for phase in ("random", "synchronised"):
        times, streams = Cameras(8, fps, phase).all_arrivals(frames, seed=1)
        fleet = Fleet(service, Scheduler(), frames=Frames())
        p99[phase] = np.quantile(simulate(fleet, times, 1, streams=streams).waited_ns, 0.99)
    gaps = np.random.default_rng(1).exponential(1e9 / (8 * fps), 8 * frames)
    poisson = simulate(Fleet(service, Scheduler()), np.cumsum(gaps).astype(np.int64), 1)
    p99["poisson"] = np.quantile(poisson.waited_ns, 0.99)
    assert p99["synchronised"] == 7_000_000, "the last of eight waits for seven"
    assert 2 * p99["random"] < p99["synchronised"] < p99["poisson"]


def test_more_frames_are_delivered_in_time_when_late_ones_are_dropped() -> None:
    """Three cameras of 50 fps, 8 ms a frame: a fifth more than one instance can do."""
    service = ServiceSamples.of({1: [8_000_000]})
    times, streams = Cameras(3, 50).all_arrivals(1_000, seed=1)
    told = {}
    for frames in (Frames(), Frames("drop-late", 25_000_000), Frames("latest-only")):
        found = simulate(Fleet(service, Scheduler(), frames=frames), times, 1, streams=streams)
        told[frames.policy] = report(found, 3, (0, 20 * SECOND_NS), deadline_ns=40_000_000).together
    assert told["fifo"].dropped == 0
    assert told["fifo"].missed > 2_000
    assert told["fifo"].delivered_fps == pytest.approx(125, rel=0.01)
    for policy in ("drop-late", "latest-only"):
        # One instance at 125 fps drops 25 of 150 frames each second.
        assert told[policy].dropped == pytest.approx(3_000 / 6, rel=0.05)
        assert told[policy].missed == told[policy].dropped
        assert told[policy].delivered_fps == pytest.approx(125, rel=0.01)


@pytest.mark.parametrize(
    "refused",
    [
        lambda: Cameras(0, 10),
        lambda: Cameras(1, 0),
        lambda: Cameras(1, 10, jitter_ns=10**8 + 1),
        lambda: report(run(Frames(), (0, 0)), 1, (5, 5)),
        lambda: report(
            simulate(Fleet(ServiceSamples.of({1: [1]}), Scheduler()), np.arange(3), 1), 1, (0, 9)
        ),
    ],
)
def test_what_are_no_cameras_is_refused(refused) -> None:
    with pytest.raises(UsageError) as error:
        refused()
    assert error.value.hint
