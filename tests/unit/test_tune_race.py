"""When a setting is left, and what is then said of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from loadtest.results import Histograms, Trial
from loadtest.slo.state import CLOSED, State, evidence_of, state_of
from loadtest.tune.outcome import Outcome
from loadtest.tune.race import HEADSTART, Bar, outcome_of, too_slow
from tests import sample_trials as made

MS = made.MS
LIMIT_MS = 50.0
Kept = tuple[Trial, Histograms]


def closed(users: int, latency_ms: float) -> Kept:
    """Two seconds of ``users`` that each send as soon as they have their answer."""
    count = int(users * 2000 / latency_ms)
    given = {"scenario": CLOSED, "ceiling_rps": 20_000.0}
    return made.trial("onnxruntime", users, 0, [round(latency_ms * MS)] * count, **given)


def probe(rate_rps: float, latency_ms: float, **changes: object) -> Kept:
    """Every request takes ``latency_ms``."""
    given = {"scenario": "server", **changes}
    return made.trial("onnxruntime", rate_rps, 1, [round(latency_ms * MS)] * 400, **given)


FAST = (closed(1, 5.0), closed(16, 80.0))
"""200 requests/s one at a time and together."""


def state(*probes: Kept, loops: Sequence[Kept] = FAST) -> State:
    settings = made.settings(
        backends=("onnxruntime",),
        scenario="server",
        level_name="requests/s",
        levels=(),
        repeats=1,
        duration_s=5.0,
        limit_s=60.0,
        objectives=(f"p90<={LIMIT_MS:g}ms",),
    )
    return state_of(settings, [evidence_of(*kept) for kept in (*loops, *probes)], "onnxruntime")


def searched(goodput_rps: float, capacity_rps: float, guess_rps: float) -> Outcome:
    return Outcome(
        verdict="searched",
        why="",
        goodput_rps=goodput_rps,
        estimate_rps=goodput_rps,
        capacity_rps=capacity_rps,
        guess_rps=guess_rps,
    )


def test_the_first_setting_has_no_bar_and_is_searched_to_its_end() -> None:
    bar = Bar.of([])
    assert bar.first_rps is None
    assert not bar.lost(state())
    assert not bar.lost(state(probe(170.0, 90.0)))


def test_the_bar_is_the_best_rate_and_settings_begin_just_above_it() -> None:
    bar = Bar.of([searched(100.0, 200.0, 80.0), searched(90.0, 300.0, 90.0)])
    assert bar.best_rps == 100.0
    assert bar.first_rps == pytest.approx(HEADSTART * 100.0)


def test_a_setting_that_answers_less_than_the_best_rate_is_left_without_a_probe() -> None:
    bar = Bar(best_rps=300.0)
    assert "16 users at once" in bar.lost(state())
    assert not Bar(best_rps=150.0).lost(state())


def test_a_backend_whose_goodput_exceeds_its_closed_loops_is_not_screened_by_them() -> None:
    """Its batches are larger when more than the loop's users wait."""
    bar = Bar.of([searched(300.0, 200.0, 150.0)])
    assert not bar.lost(state())


def test_a_setting_that_is_too_slow_for_one_request_is_left_and_told_as_no_goodput() -> None:
    slow = (closed(1, 80.0), closed(16, 100.0))
    bar = Bar(best_rps=10.0)
    found = state(loops=slow)
    assert "one request at a time" in bar.lost(found)
    outcome = outcome_of(found, bar)
    assert (outcome.verdict, outcome.estimate_rps) == ("not reachable", 0.0)


def test_a_setting_that_misses_above_the_bar_is_left_after_that_window() -> None:
    bar = Bar(best_rps=100.0)
    found = state(probe(103.0, 90.0))
    assert "103 requests/s" in bar.lost(found)
    outcome = outcome_of(found, bar)
    assert outcome.verdict == "pruned"
    assert outcome.goodput_rps is None
    assert outcome.estimate_rps is not None
    assert outcome.estimate_rps <= 100.0


def test_a_setting_whose_first_window_was_void_is_measured_once_more_and_no_lower() -> None:
    bar = Bar(best_rps=100.0)
    void = {"verdict": "INVALID", "reasons": ("client-bound: 9% of the requests left late",)}
    once, twice = probe(103.0, 5.0, **void), probe(103.0, 5.0, **void)
    assert not bar.lost(state(once))
    assert "client-bound" in bar.lost(state(once, twice))


def test_a_setting_that_meets_the_bar_is_searched_on_to_its_end() -> None:
    bar = Bar(best_rps=100.0)
    on_its_way = state(probe(103.0, 20.0), probe(128.8, 90.0))
    assert not bar.lost(on_its_way)
    whole = state(probe(103.0, 20.0), probe(107.0, 90.0), probe(107.0, 90.0))
    assert whole.search.next_rps is None
    outcome = outcome_of(whole, bar)
    assert (outcome.verdict, outcome.goodput_rps, outcome.p99_ms) == ("searched", 103.0, None)
    assert outcome.estimate_rps == outcome.goodput_rps


def test_the_costs_of_a_setting_are_those_at_its_goodput() -> None:
    met = made.trial("onnxruntime", 103.0, 1, [20 * MS] * 1_000, scenario="server")
    whole = state(met, probe(107.0, 90.0), probe(107.0, 90.0))
    outcome = outcome_of(whole, Bar())
    assert outcome.p99_ms == pytest.approx(20.0, rel=1e-3)
    assert outcome.memory_bytes is None
    assert outcome.joules is None


def test_estimates_are_calibrated_by_what_became_of_guesses_and_stay_below_the_best() -> None:
    """Goodput was a half and a quarter more than guessed, so 1.375 times in the middle."""
    bar = Bar.of([searched(150.0, 200.0, 100.0), searched(125.0, 200.0, 100.0)])
    assert bar.estimate_rps(80.0) == pytest.approx(1.375 * 80.0)
    assert bar.estimate_rps(140.0) == 150.0


def test_a_setting_too_slow_to_be_searched_is_told_by_its_closed_loop() -> None:
    outcome = too_slow("p90 needs 3 requests/s", state(), Bar(best_rps=1_000.0))
    assert (outcome.verdict, outcome.estimate_rps) == ("pruned", 200.0)
