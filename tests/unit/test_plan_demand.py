"""What is asked of a fleet: rates, cameras and traces, and the arrivals that they make."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from loadtest.camera_schedule import Cameras
from loadtest.plan.demand import CameraDemand, Demand, Rate, Trace, parse_day
from serving.errors import UsageError

_NS = 1e9
SEED = np.random.SeedSequence((1, 2))
FLAT = ("1",) * 24


def times_s(demand: Demand, length_s: float, seed: int = 1) -> np.ndarray[Any, Any]:
    return demand.arrivals(length_s, np.random.SeedSequence(seed)).due_ns / _NS


def test_a_rate_arrives_as_a_poisson_process() -> None:
    """20,000 of them: within 3% in number, and gaps whose deviation is their mean."""
    times = times_s(Rate(100.0), 200.0)
    assert len(times) == pytest.approx(20_000, rel=0.03)
    assert 0 <= times[0] <= times[-1] < 200.0
    gaps = np.diff(times)
    assert gaps.std() == pytest.approx(gaps.mean(), rel=0.03)


def test_the_same_seed_makes_the_same_arrivals() -> None:
    for demand in (
        Rate(50.0),
        CameraDemand(Cameras(3, 10.0, jitter_ns=1000), "fifo"),
        Trace((0.0, 0.1, 5.0, 9.0)),
    ):
        first, again, other = (times_s(demand, 30.0, seed) for seed in (1, 1, 2))
        np.testing.assert_array_equal(first, again)
        assert not np.array_equal(first, other)


def test_a_short_window_may_hold_nothing() -> None:
    assert len(times_s(Rate(1e-3), 1e-3)) == 0


def test_more_of_the_same_and_the_same_in_a_hurry_are_one_for_independent_clients() -> None:
    rate = Rate(100.0, day=parse_day(FLAT))
    assert rate.scaled(2.5) == rate.hurried(2.5) == Rate(250.0, rate.day)
    assert rate.frames is None


def test_a_day_is_told_by_its_mean_and_planned_by_its_peak() -> None:
    shape = parse_day(["0.5"] * 12 + ["1"] * 12)
    rate = Rate(100.0, shape)
    assert (rate.rate_rps, rate.mean_rps) == (100.0, 75.0)
    assert "75/s over the day" in rate.text
    assert Rate(100.0).mean_rps == 100.0


@pytest.mark.parametrize("wrong", [["1"] * 23, ["1"] * 25, ["x"] * 24, [""]])
def test_a_day_needs_24_numbers(wrong: list[str]) -> None:
    with pytest.raises(UsageError, match="needs 24 numbers"):
        parse_day(wrong)


@pytest.mark.parametrize("share", ["1.1", "-0.1", "nan", "inf"])
def test_an_hour_is_a_share_of_the_busiest(share: str) -> None:
    for place in (0, 12, 23):
        values = list(FLAT)
        values[place] = share
        with pytest.raises(UsageError, match="shares below 0 or above 1"):
            Rate(100.0, parse_day(values))
    with pytest.raises(UsageError, match="shares below 0 or above 1"):
        Rate(100.0, parse_day(["0"] * 24))


@pytest.mark.parametrize("wrong", [0.0, -1.0, math.nan, math.inf])
def test_a_demand_that_cannot_be_is_refused(wrong: float) -> None:
    with pytest.raises(UsageError, match="requests/s"):
        Rate(wrong)
    with pytest.raises(UsageError, match="cameras"):
        CameraDemand(Cameras(4, wrong), "fifo")
    with pytest.raises(UsageError, match="cameras"):
        CameraDemand(Cameras(-4, 10.0), "fifo")


def test_each_camera_sends_its_frames_until_the_window_ends() -> None:
    """Three at 2.5 fps come to 75 frames in ten seconds."""
    demand = CameraDemand(Cameras(3, 2.5), "latest-only")
    arrivals = demand.arrivals(10.0, SEED)
    assert demand.rate_rps == 7.5
    assert arrivals.streams is not None
    assert len(arrivals.due_ns) == 75
    assert arrivals.due_ns.max() < 10 * _NS
    for stream in range(3):
        own = arrivals.due_ns[arrivals.streams == stream]
        assert len(own) == 25
        np.testing.assert_allclose(np.diff(own), 0.4 * _NS, atol=1)


def test_a_period_that_does_not_divide_the_window_is_served_to_its_end() -> None:
    """0.3 frames per second over 10 s are 3; one that begins early sends a fourth."""
    demand = CameraDemand(Cameras(40, 0.3), "fifo")
    arrivals = demand.arrivals(10.0, SEED)
    assert arrivals.streams is not None
    phase_s = np.array([arrivals.due_ns[arrivals.streams == n][0] / _NS for n in range(40)])
    counts = np.bincount(arrivals.streams, minlength=40)
    np.testing.assert_array_equal(counts, np.where(phase_s + 3 / 0.3 < 10.0, 4, 3))


def test_more_cameras_keep_their_rate_and_hurried_ones_their_number() -> None:
    demand = CameraDemand(Cameras(4, 10.0, jitter_ns=80_000_000), "fifo")
    more, fast = demand.scaled(2.4), demand.hurried(2.0)
    assert (more.cameras.count, more.cameras.fps) == (10, 10.0)
    assert (fast.cameras.count, fast.cameras.fps) == (4, 20.0)
    assert fast.cameras.jitter_ns == 50_000_000, "no later than a period"
    assert demand.scaled(1e-6).cameras.count == 1
    assert demand.hurried(1.001).rate_rps == pytest.approx(40.04)


def test_a_deadline_is_of_those_who_drop_by_it() -> None:
    cameras = Cameras(1, 10.0)
    assert CameraDemand(cameras, "drop-late", 5).frames.deadline_ns == 5
    assert CameraDemand(cameras, "latest-only", 5).frames.deadline_ns == 0
    assert not CameraDemand(cameras, "fifo", in_order=False).frames.in_order


def bursty() -> Trace:
    """One request each second for ten minutes, but 20 per second in the second one."""
    calm, busy = np.arange(600.0), 60 + np.arange(1200) / 20
    times = np.concatenate([calm[:60], busy, calm[120:]])
    return Trace(tuple(times.tolist()))


def test_a_trace_is_planned_for_by_its_busiest_minute() -> None:
    trace = bursty()
    assert trace.rate_rps == pytest.approx(20.0)
    assert "20/s in its busiest 60 s" in trace.text
    for seed in range(3):
        times = times_s(trace, 150.0, seed)
        assert len(times) == pytest.approx(3000, abs=2)
        assert np.diff(times).max() == pytest.approx(0.05, abs=1e-6)


def test_a_trace_shorter_than_a_minute_goes_on_without_a_pause() -> None:
    """41 requests in 10 s: as many in each ten seconds of a window as its rate says."""
    trace = Trace(tuple(np.linspace(100.0, 110.0, 41).tolist()))
    assert trace.rate_rps == pytest.approx(4.1)
    times = times_s(trace, 200.0)
    assert len(times) / 200 == pytest.approx(trace.rate_rps, rel=0.02)
    assert np.diff(times).max() == pytest.approx(0.25, abs=1e-6)


def test_a_trace_in_a_hurry_is_as_busy_as_its_factor() -> None:
    trace = bursty()
    for faster in (trace.scaled(3.0), trace.hurried(3.0)):
        assert faster.rate_rps == pytest.approx(60.0, rel=0.002)
        assert len(times_s(faster, 50.0)) == pytest.approx(3000, rel=0.01)


@pytest.mark.parametrize("times", [(), (5.0,), (5.0, 5.0)])
def test_a_trace_of_one_moment_has_no_rate(times: tuple[float, ...]) -> None:
    with pytest.raises(UsageError, match="has no rate"):
        Trace(times)
