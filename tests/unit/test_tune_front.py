"""What is concluded of measured settings: front and knee, which knobs mattered, the gain."""

from __future__ import annotations

from random import Random

import pytest

from loadtest.tune.front import CELL, Candidate, knee, pareto_front
from loadtest.tune.gain import gain_of
from loadtest.tune.importance import effects_of
from loadtest.tune.outcome import Outcome, Tried
from loadtest.tune.record import best_of, tuned_backend
from loadtest.tune.space import Point, Space
from serving.knobs import Axis


def numbers(front: tuple[Candidate, ...]) -> list[int]:
    return [one.number for one in front]


def test_a_setting_that_another_beats_in_all_is_not_on_the_front() -> None:
    best = Candidate(1, 100.0, p99_ms=10.0)
    cheap = Candidate(2, 80.0, p99_ms=5.0)
    beaten = Candidate(3, 70.0, p99_ms=9.0)
    assert numbers(pareto_front([beaten, cheap, best])) == [1, 2]


def test_a_cost_that_is_lower_by_less_than_can_be_measured_buys_no_place() -> None:
    base = CELL**40
    best = Candidate(1, 100.0, p99_ms=base * 1.03)
    hardly_cheaper = Candidate(2, 60.0, p99_ms=base * 1.01)
    assert numbers(pareto_front([best, hardly_cheaper])) == [1]


def test_equal_settings_leave_the_first_of_them() -> None:
    twins = [Candidate(number, 100.0, 10.0) for number in (5, 2, 9)]
    assert numbers(pareto_front(twins)) == [2]


def test_a_measure_that_one_setting_lacks_is_left_out() -> None:
    best = Candidate(1, 100.0, p99_ms=10.0, joules=None)
    thrifty = Candidate(2, 80.0, p99_ms=20.0, joules=0.1)
    assert numbers(pareto_front([best, thrifty])) == [1]


def test_the_most_goodput_is_always_on_the_front() -> None:
    rng = Random(1)
    for _ in range(50):
        candidates = [
            Candidate(n, rng.uniform(1, 100), rng.uniform(1, 50), rng.uniform(1e8, 2e8))
            for n in range(12)
        ]
        most = max(candidates, key=lambda one: one.goodput_rps)
        front = pareto_front(candidates)
        assert front[0] == most
        for left in set(candidates) - set(front):
            assert any(one.goodput_rps >= left.goodput_rps for one in front)


def test_the_knee_is_where_more_goodput_begins_to_cost() -> None:
    """Latency is flat up to 80 requests/s and ten times as high at 100."""
    front = pareto_front(
        [
            Candidate(1, 20.0, p99_ms=4.0),
            Candidate(2, 50.0, p99_ms=4.5),
            Candidate(3, 80.0, p99_ms=5.0),
            Candidate(4, 90.0, p99_ms=20.0),
            Candidate(5, 100.0, p99_ms=50.0),
        ]
    )
    assert len(front) == 5
    found = knee(front)
    assert found is not None
    assert found.number == 3


def test_two_settings_have_no_knee() -> None:
    assert knee(pareto_front([Candidate(1, 100.0, 10.0), Candidate(2, 80.0, 5.0)])) is None


SPACE = Space(
    (
        Axis("strong", ("a", "b"), "a"),
        Axis("idle", ("x", "y"), "x"),
        Axis("untried", ("1", "2"), "1"),
    )
)


def tried(number: int, point: Point, rate_rps: float, verdict: str = "searched") -> Tried:
    known = rate_rps if verdict == "searched" else None
    outcome = Outcome.model_validate(
        {"verdict": verdict, "why": "", "goodput_rps": known, "estimate_rps": rate_rps}
    )
    return Tried(number, point, here=True, outcome=outcome)


def test_a_knob_mattered_when_it_alone_made_the_difference() -> None:
    found = {
        effect.knob: effect
        for effect in effects_of(
            SPACE,
            [
                tried(0, (0, 0, 0), 100.0),
                tried(1, (1, 0, 0), 150.0),
                tried(2, (1, 1, 0), 149.0),
            ],
        )
    }
    assert found["strong"].verdict == "mattered"
    assert found["strong"].loss == pytest.approx(1 / 3)
    assert found["idle"].verdict == "did not matter"
    assert found["untried"].verdict == "not clear"


def test_an_estimate_alone_does_not_show_that_a_knob_mattered() -> None:
    effects = effects_of(
        SPACE, [tried(0, (0, 0, 0), 100.0), tried(1, (0, 1, 0), 60.0, verdict="pruned")]
    )
    assert {effect.knob: effect.verdict for effect in effects}["idle"] == "not clear"


def test_what_cannot_meet_the_objectives_counts_as_measured() -> None:
    effects = effects_of(
        SPACE, [tried(0, (0, 0, 0), 100.0), tried(1, (0, 1, 0), 0.0, verdict="not reachable")]
    )
    assert {effect.knob: effect.verdict for effect in effects}["idle"] == "mattered"


DEFAULT_RPS = (100.0, 101.0, 99.0, 100.5, 99.5)


def test_a_gain_is_told_with_its_interval() -> None:
    found = gain_of(DEFAULT_RPS, [120.0, 121.0, 119.0, 120.5, 119.5], 5)
    assert found.decision == "gain"
    assert found.change is not None
    assert found.change.low is not None
    assert found.change.high is not None
    assert found.change.low < 1.2 < found.change.high
    assert "at 95%, 5 repeats" in found.sentence


@pytest.mark.parametrize(
    ("tuned", "default", "decision"),
    [
        ([102.0, 98.0, 101.0, 99.0, 100.0], DEFAULT_RPS, "no significant gain"),
        ([80.0, 81.0, 79.0, 80.5, 79.5], DEFAULT_RPS, "loss"),
        ([120.0, 121.0], DEFAULT_RPS, "not confirmed"),
        ([], DEFAULT_RPS, "not confirmed"),
        ([120.0, 121.0, 119.0], (), "only tuned"),
    ],
)
def test_without_a_gain_that_can_be_told_from_chance_there_is_none(
    tuned: list[float], default: tuple[float, ...], decision: str
) -> None:
    found = gain_of(default, tuned, 5)
    assert found.decision == decision
    assert found.is_one == (decision == "only tuned")
    assert found.sentence


def test_luck_in_the_search_is_not_reported_as_gain() -> None:
    """The search says 130, and measured again it is as fast as the default: keep that."""
    lucky = [tried(0, (0, 0, 0), 100.0), tried(1, (1, 0, 0), 130.0)]
    again = gain_of(DEFAULT_RPS, [100.2, 99.1, 101.3, 98.9, 100.4], 5)
    record = tuned_backend("onnxruntime", SPACE, lucky, ["p99<=50ms"], again)
    assert (record.best, record.chosen) == (1, 0)
    assert record.sentence.startswith("No significant gain on onnxruntime: keep the default.")
    assert "130" not in record.sentence


def test_nothing_is_chosen_before_it_was_measured_again() -> None:
    found = [tried(0, (0, 0, 0), 100.0), tried(1, (1, 0, 0), 130.0)]
    record = tuned_backend("onnxruntime", SPACE, found, ["p99<=50ms"])
    assert (record.best, record.chosen, record.gain) == (1, None, None)


def test_where_the_default_is_the_best_it_is_kept() -> None:
    found = [tried(0, (0, 0, 0), 100.0), tried(1, (1, 0, 0), 90.0)]
    record = tuned_backend("onnxruntime", SPACE, found, ["p99<=50ms"])
    assert (record.best, record.chosen) == (0, 0)
    assert record.sentence.startswith("Keep the default")


def test_where_no_setting_meets_the_objectives_that_is_the_answer() -> None:
    found = [tried(0, (0, 0, 0), 0.0, verdict="not reachable")]
    assert best_of(found) is None
    record = tuned_backend("onnxruntime", SPACE, found, ["p99<=50ms"])
    assert (record.chosen, record.complete) == (None, True)
    assert "in no setting that was tried" in record.sentence


def test_a_search_that_was_interrupted_has_no_answer_yet() -> None:
    found = [tried(0, (0, 0, 0), 100.0), tried(1, (1, 0, 0), 90.0)]
    record = tuned_backend("onnxruntime", SPACE, found, ["p99<=50ms"], searched=False)
    assert (record.best, record.chosen, record.complete) == (0, None, False)
    assert "not finished" in record.sentence
