"""A load that a prediction has not seen: its arrivals, what was measured of it, and the verdict."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from loadtest.plan.demand import Arrivals
from loadtest.plan.heldout import (
    MOST_DRIFT,
    WITHIN,
    Measured,
    measured_of,
    predicted,
    schedule_of,
    verification,
)
from loadtest.plan.record import Range, Verification
from loadtest.plan.server import Server
from loadtest.results import OUTCOMES
from loadtest.scenarios import OpenLoop, make_load
from serving.errors import LoadError
from tests import sample_profile as made
from tests.sample_profile import MS, constant_ns, exponential_ns

S_NS = 10 * MS
DELAY_NS = 1 * MS
SEED = 1001
KEPT = np.dtype([("due", "<i8"), ("sent", "<i8"), ("done", "<i8"), ("outcome", "u1")])
START_NS = 123_456_789_000
"""Of the schedule on the clock of the generator, which the planner does not know."""


def load(rate_rps: float = 60.0) -> OpenLoop:
    found = make_load("server", rate_rps, {}, 60.0)
    assert isinstance(found, OpenLoop)
    return found


def cameras(policy: str = "latest-only", **parameters: Any) -> OpenLoop:
    found = make_load("cameras", 4.0, {"fps": 50.0, "policy": policy, **parameters}, 60.0)
    assert isinstance(found, OpenLoop)
    return found


def served(arrivals: Arrivals, first: int, last: int) -> np.ndarray[Any, Any]:
    """What a server of 10 ms for each and 1 ms besides would have answered, written out again."""
    free_ns, done = 0, []
    for due in arrivals.due_ns[:last].tolist():
        free_ns = max(free_ns, due) + S_NS
        done.append(free_ns + DELAY_NS)
    kept = np.zeros(last - first, KEPT)
    kept["due"] = arrivals.due_ns[first:last] + START_NS
    kept["done"] = np.array(done[first:]) + START_NS
    return kept


def server() -> Server:
    return Server.of(made.profile({1: constant_ns(S_NS)}, delay_ns=DELAY_NS))


def test_the_schedule_is_the_one_that_the_generator_makes() -> None:
    for made_load in (load(), cameras()):
        arrivals = schedule_of(made_load, SEED, 30.0)
        chunks = made_load.arrivals(np.random.default_rng(SEED))
        wanted = np.concatenate([next(chunks) for _ in range(2)])
        both = min(len(wanted), len(arrivals.due_ns))
        assert both > 1000
        np.testing.assert_array_equal(arrivals.due_ns[:both], wanted[:both])
        assert arrivals.due_ns[-1] >= 30e9
    assert arrivals.streams is not None
    assert set(arrivals.streams.tolist()) == {0, 1, 2, 3}
    assert len(arrivals.streams) == len(arrivals.due_ns)


def test_a_schedule_that_ends_by_itself_is_whole() -> None:
    """What comes may also be nothing at all for a while."""
    chunks = [np.array([1, 2]), np.zeros(0, np.int64), np.array([5])]
    found = schedule_of(OpenLoop(lambda _: iter(chunks)), SEED, 30.0)
    assert found.due_ns.tolist() == [1, 2, 5]


def test_the_window_is_found_in_its_schedule_whatever_the_clock() -> None:
    arrivals = schedule_of(load(), SEED, 30.0)
    kept = served(arrivals, 300, 1500)
    found = measured_of(np.random.default_rng(1).permutation(kept), arrivals)
    assert (found.first, found.last) == (300, 1500)
    assert sorted(found.response_ns) == sorted(kept["done"] - kept["due"])
    assert found.response_ns.min() == S_NS + DELAY_NS


def test_frames_of_one_moment_are_found_too() -> None:
    arrivals = schedule_of(cameras(phase="synchronised"), SEED, 20.0)
    assert (np.diff(arrivals.due_ns) == 0).mean() == pytest.approx(0.75, abs=0.01)
    found = measured_of(served(arrivals, 400, 1200), arrivals)
    assert found.last - found.first == 800
    assert found.first % 4 == 0


def test_only_right_answers_are_measured() -> None:
    arrivals = schedule_of(load(), SEED, 30.0)
    kept = served(arrivals, 300, 1500)
    kept["outcome"][:200] = OUTCOMES.index("timeout")
    found = measured_of(kept, arrivals)
    assert (found.first, found.last, len(found.response_ns)) == (300, 1500, 1000)


def test_requests_of_another_load_are_refused() -> None:
    arrivals = schedule_of(load(), SEED, 30.0)
    other = schedule_of(load(), SEED + 1, 30.0)
    with pytest.raises(LoadError, match="no stretch of its schedule") as told:
        measured_of(served(other, 300, 1500), arrivals)
    assert told.value.exit_code == 8
    late = served(arrivals, 300, 1500)
    late["due"][600:] += 1
    with pytest.raises(LoadError, match="no stretch of its schedule"):
        measured_of(late, arrivals)
    longer = served(schedule_of(load(), SEED, 100.0), 300, len(arrivals.due_ns) + 302)
    with pytest.raises(LoadError, match="no stretch of its schedule"):
        measured_of(longer, arrivals)


def test_a_window_without_a_right_answer_is_refused() -> None:
    arrivals = schedule_of(load(), SEED, 30.0)
    kept = served(arrivals, 300, 400)
    for count in (0, 1):
        with pytest.raises(LoadError, match=f"{count} right answers to {count} requests"):
            measured_of(kept[:count], arrivals)
    kept["outcome"] = OUTCOMES.index("timeout")
    with pytest.raises(LoadError, match="0 right answers to 100 requests"):
        measured_of(kept, arrivals)


@pytest.mark.parametrize("rate_rps", [30.0, 60.0, 90.0])
@pytest.mark.parametrize("quantile", [0.5, 0.95, 0.99])
def test_a_server_without_chance_is_predicted_exactly(rate_rps: float, quantile: float) -> None:
    """The same arrivals and the same service leave nothing to differ but rounding."""
    arrivals = schedule_of(load(rate_rps), SEED, 60.0)
    window = measured_of(served(arrivals, 500, 1700), arrivals)
    expected = predicted(server(), load(rate_rps), arrivals, window, quantile, SEED)
    truth_ms = float(np.quantile(window.response_ns, quantile, method="inverted_cdf")) / MS
    assert expected.low == expected.value == expected.high
    assert expected.value == pytest.approx(truth_ms, rel=0.01)
    assert window.percentile_ms(quantile)[0] == pytest.approx(truth_ms)


def test_chance_in_the_service_is_the_spread_of_a_prediction() -> None:
    arrivals = schedule_of(load(), SEED, 60.0)
    window = measured_of(served(arrivals, 500, 1700), arrivals)
    chancy = Server.of(made.profile({1: exponential_ns(S_NS)}))
    found = predicted(chancy, load(), arrivals, window, 0.95, SEED)
    assert found.low < found.value < found.high
    assert found == predicted(chancy, load(), arrivals, window, 0.95, SEED)
    assert found != predicted(chancy, load(), arrivals, window, 0.95, SEED + 1)


def test_frames_are_dropped_at_their_cameras_in_a_prediction_too() -> None:
    """Of 200 frames per second 100 are served: each a period at the camera, then four services."""
    arrivals = schedule_of(cameras(), SEED, 20.0)
    everything = Measured(np.array([1]), 400, 3000)
    found = predicted(server(), cameras(), arrivals, everything, 0.99, SEED)
    assert 40.0 < found.value <= 20.0 + 40.0 + 1.0
    late = cameras("drop-late", deadline_ms=15.0)
    dropped = predicted(server(), late, arrivals, everything, 0.99, SEED)
    assert dropped.value <= 15.0 + 40.0 + 1.0
    queued = predicted(server(), cameras("fifo"), arrivals, everything, 0.99, SEED)
    assert queued.value > 1000.0


def test_a_prediction_of_no_answer_is_refused() -> None:
    """Each request waits for longer than it may, but the first."""
    queue = "default_timeout_microseconds: 1"
    text = made.configuration(largest=1, batching=True, queue=queue)
    impatient = Server.of(made.profile({1: constant_ns(10**12)}, configuration=text))
    arrivals = schedule_of(load(), SEED, 30.0)
    with pytest.raises(LoadError, match="nothing is answered"):
        predicted(impatient, load(), arrivals, Measured(np.array([1]), 300, 1500), 0.5, SEED)


def test_a_percentile_has_its_bounds_or_none() -> None:
    """Of 1 to 1000 ms the p95 is 950; its bounds are 2.33 deviations of 6.9 ranks away."""
    many = Measured(np.arange(1, 1001) * MS, 0, 1000)
    value, low, high = many.percentile_ms(0.95)
    assert value == 950.0
    assert high is not None
    assert (low, high) == pytest.approx((950 - 16, 950 + 16), abs=2)
    few = Measured(np.arange(1, 21) * MS, 0, 20)
    assert few.percentile_ms(0.95)[2] is None


def verdict(
    expected_ms: float, *, drift: float | None = 0.0, reasons: tuple[str, ...] = ()
) -> Verification:
    return verification(
        backend="onnxruntime",
        profile="profiles/made-up.json",
        load="60 requests/s, Poisson",
        rate_rps=60.0,
        server=server(),
        percentile="p95",
        expected=Range(value=expected_ms, low=expected_ms, high=expected_ms),
        seen=(50.0, 45.0, 55.0),
        drift=drift,
        reasons=reasons,
    )


@pytest.mark.parametrize(
    ("expected_ms", "error", "met"),
    [
        (50.0, 0.0, "within 15%"),
        (57.0, 0.14, "within 15%"),
        (43.0, -0.14, "within 15%"),
        (60.0, 0.2, "missed"),
        (40.0, -0.2, "missed"),
    ],
)
def test_a_prediction_is_met_within_15_percent_of_what_was_measured(
    expected_ms: float, error: float, met: str
) -> None:
    assert WITHIN == 0.15
    found = verdict(expected_ms)
    assert found.error == pytest.approx(error)
    assert found.verdict == met
    assert found.utilisation == pytest.approx(0.6)
    assert (found.measured_ms, found.measured_low_ms, found.measured_high_ms) == (50, 45, 55)


@pytest.mark.parametrize(("drift", "way"), [(0.06, "6% faster"), (-0.06, "6% slower")])
def test_a_machine_that_has_changed_makes_the_test_invalid(drift: float, way: str) -> None:
    assert MOST_DRIFT == 0.05
    found = verdict(50.0, drift=drift)
    assert found.verdict == "INVALID"
    assert f"{way} than when profiled" in found.reasons[0]
    assert verdict(50.0, drift=drift / 2).verdict == "within 15%"
    assert verdict(50.0, drift=None).verdict == "within 15%"


def test_a_window_that_does_not_count_makes_the_test_invalid_and_keeps_its_error() -> None:
    found = verdict(60.0, drift=0.1, reasons=("client-bound",))
    assert found.verdict == "INVALID"
    assert found.reasons[0] == "client-bound"
    assert len(found.reasons) == 2
    assert found.error == pytest.approx(0.2)
