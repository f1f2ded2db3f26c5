"""Verdicts, percentiles and the ranking, on numbers whose right answer is known."""

from __future__ import annotations

import random

import pytest

from loadtest.analysis import judge, percentiles_ms, sample_floor, summarise
from loadtest.recorder import merge, new_histogram
from loadtest.results import Point, Summary, Trial
from tests import sample_trials as made
from tests.sample_trials import MS


def reasons(output: made.TrialOutput, users: int = 1, ended: str | None = None) -> str:
    found = judge(output, concurrency=users, client_cpus=1, server_ended=ended)
    assert (found.verdict == "VALID") == (not found.reasons)
    return "; ".join(found.reasons)


@pytest.mark.parametrize(("quantile", "floor"), [(0.9, 44), (0.95, 90), (0.99, 459), (0.999, 4603)])
def test_sample_floor_is_the_least_that_bounds_the_quantile(quantile: float, floor: int) -> None:
    assert sample_floor(quantile) == floor
    assert 1 - quantile ** sample_floor(quantile) >= 0.99
    assert 1 - quantile ** (sample_floor(quantile) - 1) < 0.99


def test_a_clean_window_is_valid() -> None:
    assert reasons(made.output([5 * MS] * 100)) == ""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"client_cpu_s": 1.9}, "client-bound: the generator used 95%"),
        ({"mean_in_flight": 0.9}, "client-bound: 0.90 requests"),
        ({"lost_server_pids": (7,)}, "1 server process(es) died"),
        ({"outcomes": made.outcomes(ok=99, wrong_answer=1)}, "1 wrong answers"),
        ({"outcomes": made.outcomes(ok=99, connection_error=1)}, "1 requests were lost"),
        ({"outcomes": made.outcomes(ok=98, timeout=1, server_fault_5xx=1)}, "1 timeout"),
        ({"outcomes": made.outcomes(ok=3)}, "too few samples"),
    ],
)
def test_each_fault_is_told(changes: dict[str, object], told: str) -> None:
    assert told in reasons(made.output([5 * MS] * 100, **changes))


def test_a_dead_server_is_told_with_how_it_ended() -> None:
    told = reasons(made.output([5 * MS] * 100), ended="was killed by SIGKILL")
    assert told == "the server was killed by SIGKILL during the trial"


def test_percentiles_are_ordered_exact_enough_and_null_below_their_floor() -> None:
    rng = random.Random(3)
    values = [int(rng.lognormvariate(2, 1) * MS) for _ in range(1_000)]
    histogram = new_histogram()
    for value in values:
        histogram.record_value(value)
    found = percentiles_ms(histogram)
    truth = sorted(values)
    for got, rank in ((found.p50, 500), (found.p90, 900), (found.p95, 950), (found.p99, 990)):
        assert got == pytest.approx(truth[rank - 1] / MS, rel=0.01)
    assert found.p99_9 is None
    assert percentiles_ms(new_histogram()).p50 is None


def test_merged_percentile_is_that_of_all_samples_not_an_average() -> None:
    _, fast = made.trial("b", 1, 1, [10 * MS] * 900)
    _, slow = made.trial("b", 1, 2, [1000 * MS] * 100)
    merged = merge([w["ok"] for h in (fast, slow) for w in h.response_time if "ok" in w])
    assert merged.total_count == 1000
    assert percentiles_ms(merged).p95 == pytest.approx(1000, rel=0.01)


def summary(rates: dict[str, list[int]], **changes: object) -> Summary:
    """Each rate is a number of right answers in one two-second trial at concurrency 1."""
    pairs = [
        made.trial(label, 1, repeat, [5 * MS] * count)
        for label, counts in rates.items()
        for repeat, count in enumerate(counts, 1)
    ]
    trials = [trial for trial, _ in pairs]
    histograms = {h.trial: h for _, h in pairs}
    repeats = len(next(iter(rates.values())))
    manifest = made.manifest(backends=tuple(rates), concurrency=(1,), repeats=repeats, **changes)
    records = {label: made.record(label) for label in rates}
    return summarise(manifest, records, trials, histograms.__getitem__, exempt=frozenset({"null"}))


def test_a_winner_needs_repeats_that_do_not_overlap() -> None:
    clear = summary({"a": [200, 210, 220], "b": [180, 190, 199]}).ranking
    assert (clear.winner, [row.backend for row in clear.rows]) == ("a", ["a", "b"])
    assert "1.11 times b" in clear.sentence
    tie = summary({"a": [200, 210, 220], "b": [180, 190, 201]}).ranking
    assert tie.winner is None
    assert "No significant difference between a and b" in tie.sentence


def test_two_repeats_are_too_few_for_a_winner() -> None:
    assert summary({"a": [400, 400], "b": [100, 100]}).ranking.winner is None


def test_null_is_never_ranked() -> None:
    ranking = summary({"null": [900, 900, 900], "b": [100, 100, 100]}).ranking
    assert [row.backend for row in ranking.rows] == ["b"]
    assert "null" in ranking.unranked


def test_an_invalid_repeat_gives_no_numbers_and_most_must_be_valid() -> None:
    good, good_histograms = made.trial("a", 1, 1, [5 * MS] * 100)
    bad, bad_histograms = made.trial(
        "a", 1, 2, [1 * MS] * 900, verdict="INVALID", reasons=("9 wrong answers",)
    )
    histograms = {h.trial: h for h in (good_histograms, bad_histograms)}

    def point(*trials: Trial) -> Point:
        found = summarise(
            made.manifest(backends=("a",), concurrency=(1,)),
            {"a": made.record("a")},
            trials,
            histograms.__getitem__,
            exempt=frozenset(),
        )
        return found.backends[0].points[0]

    half = point(good, bad)
    assert (half.verdict, half.samples) == ("INVALID", 100)
    assert half.reasons == ("9 wrong answers (1 of 2 repeats)",)
    assert half.outcomes["ok"] == 1000
    assert point(good).verdict == "VALID"


def test_a_run_is_complete_when_every_trial_of_every_measured_backend_is_there() -> None:
    assert summary({"a": [100, 100, 100]}).complete
    trials = [made.trial("a", 1, 1, [5 * MS] * 100)]
    found = summarise(
        made.manifest(backends=("a", "b"), concurrency=(1,), repeats=1),
        {"a": made.record("a"), "b": made.record("b", excluded="it did not start")},
        [trial for trial, _ in trials],
        {h.trial: h for _, h in trials}.__getitem__,
        exempt=frozenset(),
    )
    assert found.complete
    assert found.ranking.unranked == {"b": "it did not start"}
