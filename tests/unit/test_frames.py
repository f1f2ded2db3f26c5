"""What is told of frames: counted in batches, as a simulation tells it of the same frames."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from loadtest.analysis import point_of
from loadtest.camera_schedule import Cameras, FramePolicy
from loadtest.capacity import (
    Delivery,
    Fleet,
    Frames,
    Requests,
    Scheduler,
    ServiceSamples,
    report,
    simulate,
)
from loadtest.delivered import Delivered, FramesRecord
from loadtest.delivery import Repeat, of_repeats, of_window
from loadtest.engine.base import OUTCOME, RECORD, Records
from loadtest.frames import FrameTally, StreamFrames, in_turn
from loadtest.histogram import Tallies, Tally
from loadtest.scenarios import Streams
from loadtest.scenarios.base import streams_of
from loadtest.trial import join
from tests import sample_trials as made
from tests.sample_trials import MS, SECOND

STREAMS, SAMPLES = 3, 4
DEADLINE_NS = 40 * MS
WINDOW_NS = (SECOND, 19 * SECOND)
AGE_ERROR = 0.001
"""Of an HDR histogram of three digits."""


def simulated(policy: FramePolicy) -> Requests:
    """Three cameras of 50 fps, 8 ms a frame: a fifth more than one instance can do."""
    frames = Frames(policy, 25 * MS if policy == "drop-late" else 0)
    fleet = Fleet(ServiceSamples.of({1: [8 * MS]}), Scheduler(), frames=frames)
    times, streams = Cameras(STREAMS, 50).all_arrivals(1_000, seed=1)
    return simulate(fleet, times, 1, streams=streams)


def as_measured(requests: Requests) -> Records:
    """The same as an engine tells it: in the order in which they ended."""
    records = np.zeros(len(requests), RECORD)
    records["due"], records["done"] = requests.arrived_ns, requests.done_ns
    records["payload"] = requests.stream * SAMPLES + requests.index % SAMPLES
    records["outcome"] = np.where(requests.ok, OUTCOME["ok"], OUTCOME["dropped"])
    ordered: Records = records[np.argsort(requests.done_ns, kind="stable")]
    return ordered


def counted(records: Records, batch: int = 97, end_ns: int = WINDOW_NS[1]) -> FramesRecord:
    frames = tally_of(records, batch).finish(end_ns)
    return of_window(frames, streams(), (end_ns - WINDOW_NS[0]) / SECOND)


def streams() -> Streams:
    return streams_of(Cameras(STREAMS, 50), deadline_ns=DEADLINE_NS)


def tally_of(records: Records, batch: int = 97) -> FrameTally:
    tally = FrameTally(streams().names, SAMPLES, WINDOW_NS[0], DEADLINE_NS)
    for first in range(0, len(records), batch):
        tally.add(records[first : first + batch], WINDOW_NS[1])
    return tally


def assert_agree(told: Delivered, wanted: Delivery) -> None:
    found = told.frames, told.missed, told.dropped
    assert found == (wanted.frames, wanted.missed, wanted.dropped)
    assert told.delivered_fps == pytest.approx(wanted.delivered_fps)
    assert told.longest_gap_ms == wanted.longest_gap_ns / MS
    for age_ms, age_ns in (
        (told.age_p50_ms, wanted.age_p50_ns),
        (told.age_p99_ms, wanted.age_p99_ns),
    ):
        known = None if age_ns is None else pytest.approx(age_ns / MS, rel=AGE_ERROR)
        assert age_ms == known


@pytest.mark.parametrize("policy", ["fifo", "drop-late", "latest-only"])
def test_frames_are_counted_as_a_simulation_reports_them(policy: FramePolicy) -> None:
    requests = simulated(policy)
    told = counted(as_measured(requests))
    wanted = report(requests, STREAMS, WINDOW_NS, DEADLINE_NS)
    assert_agree(told.together, wanted.together)
    for own, simulated_own in zip(told.streams, wanted.streams, strict=True):
        assert_agree(own, simulated_own)
        assert own.dropped_by_policy == own.dropped
    assert [own.name for own in told.streams] == ["1", "2", "3"]


def ended(frames: Sequence[tuple[int, int, int, str]]) -> Records:
    """``frames``: stream, due and done in ms after the window's start, outcome."""
    records = np.zeros(len(frames), RECORD)
    for record, (stream, due_ms, done_ms, outcome) in zip(records, frames, strict=True):
        record["payload"] = stream * SAMPLES
        record["due"], record["done"] = WINDOW_NS[0] + due_ms * MS, WINDOW_NS[0] + done_ms * MS
        record["outcome"] = OUTCOME[outcome]
    return records


def test_what_failed_is_not_delivered_and_not_dropped_by_policy() -> None:
    records = ended(
        [(0, 0, 10, "ok"), (0, 20, 25, "timeout"), (0, 30, 31, "dropped"), (1, 0, 50, "ok")]
    )
    first, second, third = counted(records).streams
    assert (first.frames, first.dropped, first.dropped_by_policy, first.missed) == (3, 2, 1, 2)
    assert (second.frames, second.dropped, second.missed) == (1, 0, 1), "it came 10 ms too late"
    assert (third.frames, third.longest_gap_ms) == (0, 18_000)
    assert first.age_p50_ms is None, "one frame has no percentile"


def test_a_batch_of_one_counts_like_a_batch_of_all() -> None:
    records = as_measured(simulated("latest-only"))[:500]
    assert counted(records, batch=1) == counted(records, batch=500)


def test_frames_before_the_window_are_not_its_frames_but_their_answers_are() -> None:
    told = counted(ended([(0, -10, 5, "ok"), (0, 100, 130, "ok")])).streams[0]
    assert told.frames == 1
    assert told.delivered_fps == 2 / 18
    assert told.longest_gap_ms == 18_000 - 130


def test_a_window_that_was_cut_ends_its_last_gap() -> None:
    told = counted(ended([(0, 0, 10, "ok")]), end_ns=WINDOW_NS[0] + 25 * MS).streams[0]
    assert told.longest_gap_ms == 15


def test_repeats_add_up_and_ages_are_of_all_their_frames() -> None:
    """Not a mean of percentiles: the 99th of both lies among the slow ones."""
    quick = tally_of(ended([(0, 20 * n, 20 * n + 5, "ok") for n in range(500)]))
    slow = tally_of(ended([(0, 20 * n, 20 * n + 45, "ok") for n in range(100)]))
    repeats = []
    for tally in (quick, slow):
        frames = tally.finish(WINDOW_NS[1])
        told = of_window(frames, streams(), 18.0)
        repeats.append(Repeat(told, [one.ages for one in frames], 18.0))
    both = of_repeats(repeats)
    own = both.streams[0]
    assert (own.frames, own.missed, both.together.frames) == (600, 100, 600)
    assert own.delivered_fps == pytest.approx(600 / 36)
    assert own.age_p50_ms == pytest.approx(5, rel=AGE_ERROR)
    assert own.age_p99_ms == pytest.approx(45, rel=AGE_ERROR)
    assert own.longest_gap_ms == repeats[1].frames.streams[0].longest_gap_ms


def test_a_point_has_the_frames_of_its_repeats() -> None:
    trials, kept = [], {}
    for repeat, age_ms in ((1, 5), (2, 45)):
        records = ended([(0, 20 * n, 20 * n + age_ms, "ok") for n in range(300)])
        frames = tally_of(records).finish(WINDOW_NS[1])
        told = of_window(frames, streams(), 2.0)
        trial, histograms = made.trial("a", 3, repeat, [MS] * 9, frames=told)
        trials.append(trial)
        kept[trial.id] = histograms.model_copy(update={"ages": tuple(f.ages for f in frames)})
    found = point_of(trials, kept.__getitem__).frames
    assert found is not None
    assert found.together.frames == 600
    assert found.together.age_p99_ms == pytest.approx(45, rel=AGE_ERROR)
    older = [trial.model_copy(update={"frames": None}) for trial in trials]
    assert point_of(older, kept.__getitem__).frames is None


def test_streams_of_several_generators_stand_in_their_order() -> None:
    def part(*names: str) -> tuple[StreamFrames, ...]:
        return FrameTally(names, 1, 0, None).finish(SECOND)

    found = in_turn([part("a", "c", "e"), part("b", "d"), ()])
    assert [one.name for one in found] == ["a", "b", "c", "d", "e"]
    both = join(
        [made.output([MS] * 9, frames=part("a", "c")), made.output([MS] * 9, frames=part("b"))], 0
    )
    assert [one.name for one in both.frames] == ["a", "b", "c"]


def test_tallies_are_a_tally_of_each_stream() -> None:
    rng = np.random.default_rng(1)
    whose = rng.integers(0, 5, 40_000)
    ages_ns = (rng.lognormal(16, 1, 40_000)).astype(np.int64)
    together, alone = Tallies(), [Tally() for _ in range(5)]
    for first in range(0, 40_000, 700):
        part = slice(first, first + 700)
        together.add(whose[part], ages_ns[part])
    for stream, tally in enumerate(alone):
        tally.add(ages_ns[whose == stream])
        assert together.histogram(stream).encode() == tally.histogram().encode()
    assert not together.histogram(5).total_count
