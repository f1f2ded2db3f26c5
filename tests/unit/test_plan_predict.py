"""Predictions against what queueing theory knows exactly, and links against their arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from loadtest.camera_schedule import Cameras
from loadtest.capacity.formulas import md1_wait_s, mm1_wait_s, mmc_wait_s
from loadtest.confidence import sample_floor
from loadtest.links.profile import LinkProfile, Outages
from loadtest.plan.demand import CameraDemand, Demand, Rate
from loadtest.plan.predict import Predictor, Window, Wire, range_of
from loadtest.plan.server import Server
from loadtest.profiles.service import loop_users, service_of
from tests import sample_profile as made
from tests.sample_profile import MS, constant_ns, exponential_ns

S = 0.01
"""Seconds of a service."""
LINK = LinkProfile("made up", one_way_delay_ms=20.0, uplink_bps=8e6, downlink_bps=4e6)
WIRE = Wire(LINK, request_bytes=50_000, reply_bytes=1_000)
UP_MS, DOWN_MS = 50.0, 2.0
"""Of 50 kB at 8 Mbps and 1 kB at 4 Mbps."""


def exponential(**changes: Any) -> Server:
    return Server.of(made.profile({1: exponential_ns(S * 1e9)}, **changes))


def constant(**changes: Any) -> Server:
    return Server.of(made.profile({1: constant_ns(S * 1e9)}, **changes))


def predictor(server: Server, demand: Demand | float, **changes: Any) -> Predictor:
    demand = demand if not isinstance(demand, float) else Rate(demand)
    given = {"quantile": 0.99, "seed": 1, "length_s": 60.0}
    return Predictor(server, demand, **(given | changes))


def middle_ms(windows: list[Window], quantile: float) -> float:
    return range_of([window.percentile_ms(quantile) for window in windows]).value


def mean_s(windows: list[Window]) -> float:
    return float(np.mean(np.concatenate([window.response_ns for window in windows]))) / 1e9


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_mean_and_percentiles_are_those_of_an_exponential_server(load: float) -> None:
    """M/M/1: the response is exponential with mean S / (1 - load)."""
    windows = predictor(exponential(), load / S, length_s=250.0).predict(1)
    response_s = mm1_wait_s(load / S, S) + S
    assert response_s == pytest.approx(S / (1 - load))
    assert mean_s(windows) == pytest.approx(response_s, rel=0.04)
    for quantile in (0.5, 0.95, 0.99):
        expected_ms = -1e3 * response_s * math.log(1 - quantile)
        assert middle_ms(windows, quantile) == pytest.approx(expected_ms, rel=0.06), quantile


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_the_mean_is_that_of_a_constant_server(load: float) -> None:
    """M/D/1, with half the wait of M/M/1."""
    windows = predictor(constant(), load / S, length_s=250.0).predict(1)
    assert mean_s(windows) == pytest.approx(md1_wait_s(load / S, S) + S, rel=0.03)
    assert min(window.response_ns.min() for window in windows) == S * 1e9


def test_a_percentile_of_a_constant_server_is_that_of_crommelin() -> None:
    """P(W <= t) of M/D/1 within its first service: (1 - load) e^(rate t) (Crommelin, 1932)."""
    load, wait_s = 0.5, 0.6 * S
    quantile = (1 - load) * math.exp(load / S * wait_s)
    windows = predictor(constant(), load / S, length_s=250.0).predict(1)
    assert middle_ms(windows, quantile) == pytest.approx(1e3 * (S + wait_s), rel=0.02)


def test_two_instances_share_one_queue() -> None:
    server = exponential(instances=2)
    windows = predictor(server, 1.4 / S, length_s=150.0).predict(1)
    assert mean_s(windows) == pytest.approx(mmc_wait_s(1.4 / S, S, 2) + S, rel=0.04)


def linear_ns(size: int, rng: np.random.Generator) -> float:
    """4 ms a batch and 2 ms a row, within a fifth: 8 rows in 20 ms are 400 per second."""
    return (4 + 2 * size) * MS * float(rng.uniform(0.8, 1.2))


def batching_server_ms(rate_rps: float, length_s: float, seed: int) -> np.ndarray[Any, Any]:
    """Responses of that server, written out again: it takes up to 8 of those who wait."""
    rng = np.random.default_rng(seed)
    due_ns = np.cumsum(rng.exponential(1e9 / rate_rps, int(rate_rps * length_s)))
    done_ns = np.zeros_like(due_ns)
    first, now_ns = 0, 0.0
    while first < len(due_ns):
        now_ns = max(now_ns, due_ns[first])
        last = min(int(np.searchsorted(due_ns, now_ns, side="right")), first + 8)
        now_ns += linear_ns(last - first, rng)
        done_ns[first:last] = now_ns
        first = last
    return (done_ns - due_ns) / MS


@pytest.mark.parametrize("load", [0.2, 0.7])
def test_closed_loops_of_a_batching_server_predict_its_open_loop(load: float) -> None:
    users = loop_users(instances=1, largest=8)
    loops = [made.closed_loop(count, linear_ns, largest=8)[0] for count in users]
    service = service_of(loops, instances=1, largest=8)
    assert service.clear
    measured = {size: tuple(times.tolist()) for size, times in service.times_ns.items()}
    server = Server.of(made.profile(measured))
    assert server.saturated_rps == pytest.approx(400.0, rel=0.01)
    windows = predictor(server, load * 400.0, windows=10).predict(1)
    truth_ms = batching_server_ms(load * 400.0, 600.0, seed=3)
    for quantile in (0.5, 0.95, 0.99):
        expected_ms = float(np.quantile(truth_ms, quantile))
        assert middle_ms(windows, quantile) == pytest.approx(expected_ms, rel=0.03), quantile


def test_what_is_no_service_delays_every_answer_and_no_other_request() -> None:
    plain = predictor(exponential(), 0.6 / S).predict(1)
    late = predictor(exponential(delay_ns=3 * MS), 0.6 / S).predict(1)
    for one, other in zip(plain, late, strict=True):
        np.testing.assert_array_equal(other.response_ns, one.response_ns + 3 * MS)


def test_more_replicas_are_no_worse() -> None:
    own = predictor(exponential(), 1.7 / S, length_s=30.0)
    found = [middle_ms(own.predict(replicas), 0.99) for replicas in (1, 2, 3, 4, 8)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 5 * found[1], "one alone is above saturation"
    alone_ms = -1e3 * S * math.log(0.01)
    assert found[-1] == pytest.approx(alone_ms, rel=0.05), "with eight nobody waits"


def test_the_starts_of_the_server_take_turns() -> None:
    starts = tuple(made.repeat({1: constant_ns(ms * MS)}) for ms in (10, 20))
    windows = predictor(Server.of(made.profile(repeats=starts)), 1.0, windows=4).predict(1)
    assert [window.response_ns.min() / MS for window in windows] == [10, 20, 10, 20]


def test_the_same_seed_gives_the_same_answer_whatever_was_asked_before() -> None:
    demand = CameraDemand(Cameras(4, 10.0), "fifo", in_order=False)
    jittery = replace(WIRE, profile=replace(LINK, jitter_ms=10.0))

    def own(seed: int) -> Predictor:
        return predictor(exponential(), demand, seed=seed, windows=2, length_s=20.0, wire=jittery)

    asked_twice = own(1)
    asked_twice.predict(3)
    again, fresh, other = asked_twice.predict(1), own(1).predict(1), own(2).predict(1)
    for a, b, c in zip(again, fresh, other, strict=True):
        np.testing.assert_array_equal(a.response_ns, b.response_ns)
        assert a.cameras == b.cameras
        assert not np.array_equal(a.response_ns, c.response_ns)


def test_another_seed_draws_another_link() -> None:
    """Arrivals at fixed moments on an empty constant server differ by the link alone."""
    demand = CameraDemand(Cameras(1, 10.0, "synchronised"), "fifo", in_order=False)
    jittery = replace(WIRE, profile=replace(LINK, jitter_ms=10.0))
    one, other = (
        predictor(constant(), demand, seed=seed, windows=1, length_s=20.0, wire=jittery).predict(1)
        for seed in (1, 2)
    )
    np.testing.assert_array_equal(one[0].due_ns, other[0].due_ns)
    assert not np.array_equal(one[0].response_ns, other[0].response_ns)


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99, 0.999])
@pytest.mark.parametrize("rate_rps", [0.05, 1.0, 100.0, 1e6])
def test_windows_are_long_enough_for_the_percentile(quantile: float, rate_rps: float) -> None:
    """Twice the fewest samples; where a minute holds more than those, no longer than that."""
    own = predictor(constant(), rate_rps, quantile=quantile, length_s=None)
    assert own.window_s * rate_rps >= 2 * sample_floor(quantile) - 1e-6
    assert own.window_s <= max(60.0, 2 * sample_floor(quantile) / rate_rps)


def test_what_is_due_in_the_window_is_judged_after_the_queue_has_filled() -> None:
    """The first quarter is warm-up, and what is due at the end is waited for."""
    (window,) = predictor(constant(), 3.0 / S, windows=1, length_s=20.0).predict(1)
    assert 5e9 <= window.due_ns.min() < 5.1e9
    assert 24.9e9 < window.due_ns.max() < 25e9
    assert window.lost_share == 0.0
    first_s, last_s = (window.response_ns[place] / 1e9 for place in (0, -1))
    assert first_s == pytest.approx(10, rel=0.1), "thrice saturated, two thirds wait"
    assert last_s == pytest.approx(50, rel=0.1)


def test_a_queue_that_refuses_loses_what_it_cannot_carry() -> None:
    """Of 3 requests per service one is answered; the others find the queue full."""
    text = made.configuration(largest=1, batching=True, queue="max_queue_size: 4")
    server = Server.of(made.profile({1: constant_ns(S * 1e9)}, configuration=text))
    (window,) = predictor(server, 3.0 / S, windows=1).predict(1)
    assert window.lost_share == pytest.approx(2 / 3, rel=0.02)
    assert window.response_ns.max() <= 6 * S * 1e9


def cameras(count: int, fps: float, **changes: Any) -> CameraDemand:
    given = {"policy": "latest-only", "in_order": False}
    return CameraDemand(Cameras(count, fps), **(given | changes))


def test_a_frame_over_a_link_is_as_old_as_its_ways_and_its_service() -> None:
    """4 fps: an upload of 50 ms, 20 ms, 3 + 10 ms at the server, 20 ms and 2 ms back."""
    own = predictor(constant(delay_ns=3 * MS), cameras(1, 4.0), wire=WIRE, windows=2)
    expected_ms = UP_MS + 20 + 3 + 1e3 * S + 20 + DOWN_MS
    for window in own.predict(1):
        np.testing.assert_allclose(window.response_ns / MS, expected_ms, atol=1e-3)
        assert window.lost_share == 0
        assert window.cameras is not None
        assert window.cameras.together.age_p50_ns == pytest.approx(expected_ms * MS, abs=1e3)
        assert window.cameras.together.delivered_fps == pytest.approx(4.0, rel=0.01)


def test_cameras_have_a_link_each_and_requests_of_nobody_an_empty_one() -> None:
    """Together 10 cameras would need 10 x 4 x 50 ms of one uplink in each second."""
    own = predictor(constant(), cameras(10, 4.0), wire=WIRE, windows=1)
    (window,) = own.predict(10)
    least_ms = UP_MS + 40 + DOWN_MS + 1e3 * S
    np.testing.assert_allclose(window.response_ns / MS, least_ms, atol=1e-3)
    (window,) = predictor(constant(), 40.0, wire=WIRE, windows=1).predict(10)
    np.testing.assert_allclose(window.response_ns.min() / MS, least_ms, atol=1e-3)


def test_frames_of_a_camera_queue_on_its_uplink() -> None:
    """25 fps of 50 ms each: every frame is 10 ms later than the one before it."""
    own = predictor(constant(), cameras(1, 25.0, policy="fifo"), wire=WIRE, windows=1, length_s=8.0)
    (window,) = own.predict(2)
    np.testing.assert_allclose(np.diff(window.response_ns) / MS, 10.0, atol=1e-3)


def test_both_ways_of_a_window_share_their_outages() -> None:
    """Nothing passes from 20 to 22 s: what is due then is late by what is left of it."""
    cut = replace(LINK, outages=Outages(periods_s=((20.0, 2.0),)))
    own = predictor(constant(), cameras(1, 1.0), wire=replace(WIRE, profile=cut), windows=1)
    (window,) = own.predict(1)
    inside = (window.due_ns >= 20e9) & (window.due_ns < 22e9)
    assert inside.sum() == 2
    through = window.due_ns[inside] + window.response_ns[inside]
    assert through.min() > 22e9
    assert window.response_ns[~inside].max() < 1.1e9


def test_above_saturation_a_camera_keeps_the_latest_and_drops_the_rest() -> None:
    """Of 4 x 50 frames per second a server of 10 ms answers 100; the other half is dropped.

    A frame waits at its camera for less than a period, then for one of each camera and itself;
    but the last ones, which no other follows.
    """
    own = predictor(constant(), cameras(4, 50.0, in_order=True), windows=2)
    for window in own.predict(1):
        assert window.lost_share == pytest.approx(0.5, abs=0.01)
        assert window.cameras is not None
        together = window.cameras.together
        assert together.dropped / together.frames == pytest.approx(0.5, abs=0.01)
        assert together.delivered_fps == pytest.approx(100.0, rel=0.01)
        followed = window.due_ns < window.due_ns.max() - 1e9 / 50
        assert window.response_ns[followed].max() <= 1e9 / 50 + 4 * S * 1e9


@pytest.mark.parametrize("policy", ["fifo", "latest-only"])
def test_what_a_camera_has_sent_it_cannot_take_back(policy: str) -> None:
    """Without waiting for answers each frame is sent at once, so no policy drops any."""
    demand = cameras(4, 50.0, policy=policy, in_order=False)
    (window,) = predictor(constant(), demand, windows=1, length_s=8.0).predict(1)
    assert window.lost_share == 0.0
    assert window.response_ns.max() > 4e9, "half of 10 s of frames wait"


def test_a_frame_is_missed_when_it_is_older_than_the_deadline_or_never_there() -> None:
    """Within a second all are there but those that were dropped; within a nanosecond none is."""
    demand = cameras(4, 50.0, in_order=True)
    (window,) = predictor(constant(), demand, windows=1, deadline_ns=round(1e9)).predict(1)
    assert window.cameras is not None
    assert window.cameras.together.missed == window.cameras.together.dropped > 0
    (window,) = predictor(constant(), demand, windows=1, deadline_ns=1).predict(1)
    assert window.cameras is not None
    assert window.cameras.together.missed == window.cameras.together.frames


def test_a_window_without_an_answer_has_no_bound() -> None:
    nothing = np.zeros(0, np.int64)
    assert Window(nothing, nothing, 1.0, None).percentile_ms(0.99) == math.inf
    one = Window(np.array([0]), np.array([5 * MS]), 0.0, None)
    assert one.percentile_ms(0.5) == one.percentile_ms(0.999) == 5.0


def test_the_range_leaves_a_tenth_out() -> None:
    found = range_of([float(value) for value in range(20, 0, -1)])
    assert (found.low, found.value, found.high) == (2.0, 10.5, 19.0)
    few = range_of([3.0, 1.0, 2.0])
    assert (few.low, few.value, few.high) == (1.0, 2.0, 3.0)


def test_a_large_fleet_is_predicted_by_one_of_its_shards() -> None:
    """800 replicas at 60% are two fleets of 400 that know nothing of each other."""
    whole = predictor(constant(), 800 * 0.6 / S, windows=1, length_s=0.5).predict(800)
    part = predictor(constant(), 400 * 0.6 / S, windows=1, length_s=0.5).predict(400)
    np.testing.assert_array_equal(whole[0].response_ns, part[0].response_ns)
