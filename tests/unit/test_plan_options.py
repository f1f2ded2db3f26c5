"""One option of a plan: its number with what goes with it, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtest.camera_schedule import Cameras
from loadtest.capacity.formulas import mmc_wait_s
from loadtest.energy_use import flight_time_lost_s
from loadtest.links.profile import LinkProfile
from loadtest.objective import Percentile
from loadtest.plan.demand import CameraDemand, Demand, Rate, parse_day
from loadtest.plan.money import cost_of, energy_of
from loadtest.plan.options import Payload, option_of
from loadtest.plan.predict import Predictor
from loadtest.plan.question import Question
from loadtest.plan.record import Option
from loadtest.plan.scenarios import DEMANDS, burst_of, curve_of, fleet_points
from loadtest.plan.server import Server, replicas_for
from serving.errors import UsageError
from tests import sample_profile as made
from tests.sample_profile import MS, constant_ns, exponential_ns, point

S = 0.01
FULL_RPS = 1 / S
USABLE_RPS = 60.0
RATE_RPS = 150.0
LIMIT_MS = 100.0
PATH = Path("profiles/made-up.json")
LINK = LinkProfile("thin", one_way_delay_ms=20.0, uplink_bps=8e6, downlink_bps=4e6)
SWEEP = (
    point(1, 50.0, 30.0),
    point(2, USABLE_RPS, 60.0),
    point(4, 99.0, 110.0),
    point(8, FULL_RPS, 250.0),
)


def objective(limit_ms: float = LIMIT_MS, quantile: float = 0.95) -> Percentile:
    return Percentile(f"p{100 * quantile:g}", quantile, round(limit_ms * MS))


def question(demand: Demand | float = RATE_RPS, **changes: Any) -> Question:
    demand = demand if not isinstance(demand, float) else Rate(demand)
    given = {"objective": objective(), "survive": 1}
    return Question(demand, **(given | changes))


def profile(**changes: Any) -> Any:
    given = {"sweep": SWEEP, "energy": made.power(idle_w=4.0, active_w=10.0)}
    return made.profile({1: exponential_ns(S * 1e9)}, **(given | changes))


def cameras(count: int, fps: float) -> CameraDemand:
    return CameraDemand(Cameras(count, fps), "latest-only", in_order=False)


def why_not(asked: Question, **changes: Any) -> str:
    """Why there is no number; nothing else may be told then."""
    found = option_of(PATH, profile(**changes), asked)
    assert found.replicas is None
    assert found.response_ms is found.failure is found.burst is found.utilisation is None
    assert found.curve == found.fleet == ()
    return found.why


@pytest.fixture(scope="module")
def asked() -> Question:
    return question(
        Rate(RATE_RPS, parse_day(["0.5"] * 12 + ["1"] * 12)),
        price_per_hour=0.2,
        currency="EUR",
        hover_w=180.0,
        battery_wh=90.0,
    )


@pytest.fixture(scope="module")
def option(asked: Question) -> Option:
    return option_of(PATH, profile(), asked)


def test_the_number_follows_from_headroom_the_objective_and_failures(option: Option) -> None:
    """150 / (60 x 0.7) is 3.6, so 4; 3 keep the objective and one more survives a failure."""
    assert option.replicas == replicas_for(RATE_RPS, USABLE_RPS, 0.3) == 4
    assert option.why == (
        "150/s over 60/s usable of each at 70% use: 4; the simulated objective: 3; "
        "and 1 more to survive 1 failed"
    )
    assert option.usable_rps == USABLE_RPS
    assert option.peak_rps == FULL_RPS
    assert option.utilisation == pytest.approx(RATE_RPS / (4 * FULL_RPS), rel=0.01)
    assert option.profile == str(PATH)
    assert option.memory_bytes == 200_000_000
    assert option.warnings == ()


def test_the_forecast_keeps_the_objective_with_its_range(option: Option) -> None:
    alone_ms = -1e3 * S * math.log(0.05)
    seen = option.response_ms
    assert seen is not None
    assert 0.95 * alone_ms < seen.low <= seen.value <= seen.high <= LIMIT_MS
    assert option.frames is None


def test_a_failure_is_told_with_what_is_left(option: Option) -> None:
    failure = option.failure
    assert failure is not None
    assert (failure.failed, failure.lost_share, failure.detect_s) == (1, 0.25, 1.0)
    assert failure.utilisation == pytest.approx(RATE_RPS / (3 * FULL_RPS), rel=0.01)
    assert failure.holds
    assert failure.response_ms is not None
    assert option.response_ms is not None
    assert option.response_ms.value < failure.response_ms.value <= LIMIT_MS
    assert failure.restart_s == 2.5


def test_a_burst_is_told_with_its_recovery(option: Option) -> None:
    """One and a half times 38% is 56%: slower than before, and over when it is over."""
    burst = option.burst
    assert burst is not None
    assert (burst.factor, burst.length_s) == (1.5, 10.0)
    assert burst.response_ms is not None
    assert option.response_ms is not None
    assert option.response_ms.value < burst.response_ms.value < LIMIT_MS
    assert burst.holds
    assert burst.recovery_s is not None
    assert burst.recovery_s <= 2.0


def test_what_breaks_first_breaks_before_saturation(option: Option) -> None:
    told = option.breaks_first
    assert told is not None
    assert told.startswith("p95 or the share of lost requests, at ")
    factor = float(told.removesuffix(" times the demand").rpartition(" ")[2])
    assert 1.2 < factor < 4 * FULL_RPS / RATE_RPS


def test_the_curve_rises_from_a_lone_request_and_ends_below_saturation(option: Option) -> None:
    loads = [one.utilisation for one in option.curve]
    assert loads == sorted(loads)
    assert (loads[0], loads[-1]) == pytest.approx((0.1, 0.95))
    values = [one.response_ms.value for one in option.curve]
    assert values == sorted(values)
    for one in option.curve[:8]:
        expected_ms = -1e3 * S * math.log(0.05) / (1 - one.utilisation)
        assert one.response_ms.value == pytest.approx(expected_ms, rel=0.1), one.utilisation


def test_the_steps_pass_through_the_plan(option: Option) -> None:
    points = {one.rate_rps: one.replicas for one in option.fleet}
    assert list(points) == [factor * RATE_RPS for factor in DEMANDS]
    assert points[RATE_RPS] == option.replicas
    assert list(points.values()) == sorted(points.values())


@pytest.mark.parametrize("survive", [0, 1, 3])
def test_steps_hold_the_spare_ones_at_every_demand(survive: int) -> None:
    """By the objective 6, and half as many for half of it; headroom asks for fewer."""
    given = question(survive=survive, headroom=0.0)
    points = {one.rate_rps: one.replicas for one in fleet_points(given, 6, 1e6)}
    assert points[RATE_RPS] == 6 + survive
    assert points[RATE_RPS / 2] == 3 + survive
    assert points[4 * RATE_RPS] == 24 + survive


def test_power_lies_between_idle_and_busy_by_utilisation(asked: Question, option: Option) -> None:
    """4 W idle, 10 W busy; each of the 4 replicas answers 37.5/s."""
    energy = option.energy
    assert energy is not None
    assert option.utilisation is not None
    watts = 4.0 + 6.0 * option.utilisation
    assert energy.watts == pytest.approx(watts)
    assert energy.gross_j_per_inference == pytest.approx(watts / 37.5)
    assert energy.net_j_per_inference == pytest.approx((watts - 4.0) / 37.5)
    assert energy.inferences_per_wh == pytest.approx(3600 * 37.5 / watts)
    assert energy.flight_time_lost_s == pytest.approx(flight_time_lost_s(180.0, 90.0, watts))
    assert option.energy_missing is None


def test_a_million_costs_what_the_fleet_costs_over_the_day(option: Option) -> None:
    """4 replicas at 0.2 per hour for 75% of 150/s on the mean."""
    assert option.cost_per_million == pytest.approx(4 * 0.2 / (0.75 * 150 * 3600) * 1e6)
    assert option.currency == "EUR"


def test_a_closed_form_stands_beside_the_simulation(option: Option) -> None:
    (check,) = option.crosschecks
    assert option.replicas is not None
    wait_s = mmc_wait_s(RATE_RPS, S, option.replicas)
    assert check.value_ms == pytest.approx(1e3 * (wait_s + S), rel=0.01)
    assert check.simulated_ms == pytest.approx(check.value_ms, rel=0.15)
    assert option.scalability is not None
    assert "over 1 to 8 users" in option.scalability


def test_an_option_survives_its_file(option: Option) -> None:
    assert Option.model_validate_json(option.model_dump_json()) == option


def test_without_power_or_price_there_is_none_and_no_zero() -> None:
    asked = question(20.0)
    without = profile(energy=None, energy_missing="no rail")
    assert energy_of(without, 20.0, 0.2, asked) == (None, "no rail")
    assert energy_of(profile(energy=None), 20.0, 0.2, asked) == (None, "the profile has no power")
    assert cost_of(asked, 3) is None
    unknown_idle = profile(energy=made.power(idle_w=None, active_w=10.0))
    energy, why = energy_of(unknown_idle, 20.0, 0.2, asked)
    assert why is None
    assert energy is not None
    assert (energy.watts, energy.net_j_per_inference) == (10.0, None)
    assert energy.flight_time_lost_s is None


def test_an_objective_below_a_lone_request_is_told_with_the_smallest_reachable() -> None:
    """Of the samples of an exponential request of 10 ms: -10 ln 0.05 = 29.96, within 0.1%."""
    told = why_not(question(objective=objective(25.0)))
    assert "p95<=25ms is below what a lone request takes" in told
    assert "the smallest reachable p95 is about 29.9 ms" in told


def test_a_link_adds_its_round_trip_and_upload_to_the_smallest_reachable() -> None:
    """30 ms at the server, 50 ms for 50 kB at 8 Mbps, and 40 ms there and back."""
    told = why_not(question(link=LINK))
    assert "the smallest reachable p95 is about 120 ms" in told


def test_a_sweep_that_never_meets_the_objective_gives_no_number() -> None:
    late = tuple(point(one.users, one.requests_per_s, 200.0 + one.users) for one in SWEEP)
    told = why_not(question(), sweep=late)
    assert "no measured point meets p95<=100ms: the smallest p95 is 201 ms" in told
    failing = tuple(point(one.users, one.requests_per_s, 20.0, failed_share=0.5) for one in SWEEP)
    assert "loses at most 0.10%" in why_not(question(), sweep=failing)


def test_a_link_too_thin_for_a_camera_gives_no_number() -> None:
    """50 kB at 25 fps are 10 Mbps of 8."""
    told = why_not(question(cameras(4, 25.0), link=LINK, objective=objective(1000.0)))
    assert "125% of the uplink of thin" in told
    assert "send less" in told


def test_a_fleet_beyond_the_largest_gives_no_number() -> None:
    assert "no fleet of up to 3 replicas" in why_not(question(most_replicas=3))


def test_payloads_are_weighed_on_the_link() -> None:
    """100 kB at 8 Mbps take 0.1 s; at 4 fps that is 40% of the uplink."""
    payloads = (Payload("a picture", 100_000),)
    given = question(cameras(4, 4.0), link=LINK, objective=objective(30.0))
    (cost,) = option_of(PATH, profile(), given, payloads).wire
    assert cost.uplink_ms == pytest.approx(100.0)
    assert cost.uplink_share == pytest.approx(0.4)
    alone = option_of(PATH, profile(), question(link=LINK, objective=objective(30.0)), payloads)
    assert alone.wire[0].uplink_share == 0.0, "nobody says how often one client sends"
    assert option_of(PATH, profile(), question(objective=objective(1.0)), payloads).wire == ()


def test_cameras_over_a_link_are_told_by_their_frames() -> None:
    fixed = made.profile({1: constant_ns(S * 1e9)}, sweep=SWEEP)
    given = question(
        cameras(2, 4.0), link=LINK, objective=objective(200.0, 0.9), most_lost=0.01, survive=0
    )
    found = option_of(PATH, fixed, given, (Payload("a picture", 50_000),))
    assert found.replicas == 1
    frames = found.frames
    assert frames is not None
    assert found.response_ms is not None
    assert found.response_ms.low > 50 + 20 + 10 + 20 + 2 - 1e-6
    assert frames.delivered_fps.value == pytest.approx(4.0, rel=0.01)
    assert frames.dropped_share.high <= 0.01
    assert frames.missed_share is not None
    assert frames.missed_share.high <= 0.1
    assert frames.age_p50_ms.value <= found.response_ms.value
    assert 250 - 1 < frames.longest_gap_ms.value < 500
    rates = [one.rate_rps for one in found.curve]
    assert rates == sorted(set(rates)), "cameras are whole"
    assert max(rates) < FULL_RPS
    assert max(one.response_ms.value for one in found.curve[:3]) < 50, "without the link"
    failure = found.failure
    assert failure is not None
    assert (failure.failed, failure.lost_share, failure.response_ms) == (1, 1.0, None)
    assert not failure.holds


def predictor(demand: Demand, **changes: Any) -> Predictor:
    fixed = made.profile({1: constant_ns(S * 1e9)})
    given = {"quantile": 0.95, "seed": 1, "windows": 3}
    return Predictor(Server.of(fixed), demand, **(given | changes))


def test_a_burst_above_saturation_takes_as_long_to_recover_as_its_queue_is_long() -> None:
    """Twice 80/s for 4 s leave 240 waiting; 20/s more than come are answered: 12 s."""
    asked = question(80.0, burst=(2.0, 4.0))
    found = burst_of(predictor(asked.demand), asked, 1)
    assert found.recovery_s == pytest.approx(12.0, abs=4.0)
    assert found.response_ms is not None
    assert found.response_ms.value == pytest.approx(2400 * 0.95, rel=0.15)
    assert not found.holds


def test_a_burst_that_outlasts_the_window_has_no_recovery() -> None:
    """Twice 98/s for 5 s leave 480 waiting, and only 2/s more than come are answered."""
    asked = question(98.0, burst=(2.0, 5.0))
    assert burst_of(predictor(asked.demand), asked, 1).recovery_s is None


def test_a_burst_in_which_some_windows_saw_nothing_is_judged_by_the_others() -> None:
    """0.3 requests in 4 s are none in three windows of four."""
    asked = question(0.05, burst=(1.5, 4.0))
    found = burst_of(predictor(asked.demand, windows=20), asked, 1)
    assert found.response_ms is not None
    assert found.response_ms.low == pytest.approx(10.0)
    assert found.holds


@pytest.mark.parametrize(
    "demand", [Rate(1e-6), CameraDemand(Cameras(1, 1e-6), "latest-only")], ids=["rate", "camera"]
)
def test_a_burst_of_nothing_is_told_as_nothing(demand: Demand) -> None:
    asked = question(demand)
    found = burst_of(predictor(demand), asked, 1)
    assert found.response_ms is None
    assert found.recovery_s is None


def test_cameras_in_a_burst_are_as_many_and_drop_their_frames() -> None:
    """4 at 40 fps are too many, and each frame is at most a period and four services old."""
    asked = question(CameraDemand(Cameras(4, 20.0), "latest-only"), burst=(2.0, 5.0))
    found = burst_of(predictor(asked.demand), asked, 1)
    assert found.response_ms is not None
    assert 40.0 < found.response_ms.low <= found.response_ms.high <= 1e3 / 40 + 4 * 10.0


def test_the_curve_of_a_camera_that_is_too_much_is_empty() -> None:
    asked = question(CameraDemand(Cameras(3, 120.0), "latest-only"))
    assert list(curve_of(predictor(asked.demand), asked)) == []


def test_warnings_tell_what_makes_service_times_doubtful() -> None:
    given = question(replace(cameras(4, 4.0), in_order=True), balance="round-robin")
    hasty = replace(given, objective=objective(1.0))
    setting = {"intra_op_threads": "2"}
    told = option_of(PATH, profile(setting=setting), hasty).warnings
    assert len(told) == 2
    assert "more inference threads than its 1 CPUs" in told[0]
    assert "round robin" in told[1]
    (sent,) = option_of(PATH, profile(), replace(hasty, demand=cameras(4, 4.0))).warnings[:1]
    assert sent == "cameras send each frame at once, so the policy latest-only drops none"


@pytest.mark.parametrize(
    "changes", [{"survive": -1}, {"headroom": 1.0}, {"headroom": -0.1}, {"most_lost": 1.0}]
)
def test_a_question_that_cannot_be_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        question(**changes)
