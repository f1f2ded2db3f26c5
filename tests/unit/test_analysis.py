"""Percentiles, points and the ranking, on numbers whose right answer is known."""

from __future__ import annotations

import random

import pytest

from loadtest.analysis import percentiles_ms, samples_of
from loadtest.results import Histograms, Percentiles, Point, Summary, Trial
from loadtest.summary import summarise
from tests import sample_trials as made
from tests.sample_trials import MS, SECOND, requests


def percentiles_of(*trials: Histograms) -> Percentiles:
    return percentiles_ms(samples_of([w for h in trials for w in h.response_time]))


def test_percentiles_are_ordered_exact_enough_and_null_below_their_floor() -> None:
    rng = random.Random(3)
    values = [int(rng.lognormvariate(2, 1) * MS) for _ in range(1_000)]
    found = percentiles_of(made.trial("b", 1, 1, values)[1])
    truth = sorted(values)
    for got, rank in ((found.p50, 500), (found.p90, 900), (found.p95, 950), (found.p99, 990)):
        assert got is not None
        assert got.value_ms == pytest.approx(truth[rank - 1] / MS, rel=0.01)
        assert got.high_ms is not None
        assert got.low_ms <= got.value_ms <= got.high_ms
    assert found.p99_9 is None


def test_merged_percentile_is_that_of_all_samples_not_an_average() -> None:
    _, fast = made.trial("b", 1, 1, [10 * MS] * 900)
    _, slow = made.trial("b", 1, 2, [1000 * MS] * 100)
    found = percentiles_of(fast, slow)
    assert found.p95 is not None
    assert found.p95.value_ms == pytest.approx(1000, rel=0.01)
    assert found.p90 is not None
    assert 10 <= found.p90.value_ms <= 1000


def with_timeouts(ok: int, timeouts: int, not_sent: int = 0) -> Percentiles:
    """Answers of 5 ms, and requests that were given up after one second."""
    from loadtest.recorder import Recorder

    recorder = Recorder(0, 2 * SECOND)
    recorder.add(requests(made.spread(ok), [5 * MS] * ok))
    recorder.add(requests(made.spread(timeouts), [1000 * MS] * timeouts, outcome="timeout"))
    return percentiles_ms(samples_of(recorder.finish().response_time, not_sent))


def test_a_timeout_enters_as_at_least_the_limit() -> None:
    """Left out, ten percent of timeouts would give a p99 of 5 ms."""
    found = with_timeouts(900, 100)
    assert found.p99 is not None
    assert found.p99.value_ms == pytest.approx(1000, rel=0.01)
    assert (found.p99.at_least, found.p99.high_ms) == (True, None)
    assert found.p50 is not None
    assert found.p50.value_ms == pytest.approx(5, rel=0.01)
    assert not found.p50.at_least


def test_requests_that_were_not_sent_stand_at_the_far_end() -> None:
    found = with_timeouts(960, 0, not_sent=40)
    assert found.p95 is not None
    assert not found.p95.at_least
    assert found.p99 is not None
    assert found.p99.at_least


def test_fast_failures_improve_nothing() -> None:
    """80 answers of 500 ms and 20 refusals at once: latency of answers 500 ms, refusals apart."""
    from loadtest.analysis import point_of
    from loadtest.recorder import Recorder

    recorder = Recorder(0, 2 * SECOND)
    recorder.add(requests(made.spread(80), [500 * MS] * 80))
    recorder.add(requests(made.spread(20), [MS] * 20, outcome="client_fault_4xx"))
    measured = recorder.finish()
    trial, histograms = made.trial(
        "b",
        10,
        1,
        [MS] * 9,
        outcomes=measured.outcomes,
        planned=100,
        verdict="INVALID",
        reasons=("failed requests: 20 client_fault_4xx",),
    )
    refused = histograms.model_copy(
        update={"response_time": measured.response_time, "service_time": measured.service_time}
    )
    point = point_of([trial], {trial.id: refused}.__getitem__)
    assert point.requests_per_s == 40
    assert point.response_time_ms.p50 is not None
    assert point.response_time_ms.p50.value_ms == pytest.approx(500, rel=0.01)
    assert point.failure_response_ms == pytest.approx(1, rel=0.01)
    assert point.outcomes["client_fault_4xx"] == 20
    assert point.verdict == "INVALID"


def summary(rates: dict[str, list[int]], **changes: object) -> Summary:
    """Each rate is a number of right answers in one two-second trial at level 1."""
    pairs = [
        made.trial(label, 1, repeat, [5 * MS] * count)
        for label, counts in rates.items()
        for repeat, count in enumerate(counts, 1)
    ]
    trials = [trial for trial, _ in pairs]
    histograms = {h.trial: h for _, h in pairs}
    repeats = len(next(iter(rates.values())))
    manifest = made.manifest(backends=tuple(rates), levels=(1,), repeats=repeats, **changes)
    records = {label: made.record(label) for label in rates}
    return summarise(manifest, records, trials, histograms.__getitem__)


def test_a_winner_needs_an_interval_that_leaves_one_out() -> None:
    clear = summary({"triton": [200, 210, 220], "fastapi": [150, 155, 160]}).ranking
    assert (clear.winner, [row.backend for row in clear.rows]) == ("triton", ["triton", "fastapi"])
    against = clear.rows[1].against_first
    assert against is not None
    assert against.verdict == "slower"
    assert against.low is not None
    assert against.high is not None
    told = f"{1 / against.ratio:.2f} times ({1 / against.high:.2f} to {1 / against.low:.2f} at 95%)"
    assert f"{told} fastapi" in clear.sentence
    tie = summary({"triton": [200, 210, 220], "fastapi": [180, 199, 201]}).ranking
    assert tie.winner is None
    assert "No significant difference between triton and fastapi" in tie.sentence


def test_failures_stand_beside_each_other() -> None:
    rows = summary({"triton": [200, 210, 220], "fastapi": [150, 155, 160]}).ranking.rows
    assert [row.failed_share for row in rows] == [0, 0]


def test_two_repeats_are_too_few_for_a_winner() -> None:
    assert summary({"triton": [400, 400], "fastapi": [100, 100]}).ranking.winner is None


def test_null_is_never_ranked() -> None:
    ranking = summary({"null": [900, 900, 900], "fastapi": [100, 100, 100]}).ranking
    assert [row.backend for row in ranking.rows] == ["fastapi"]
    assert "null" in ranking.unranked


def test_an_invalid_repeat_gives_no_numbers_and_most_must_be_valid() -> None:
    good, good_histograms = made.trial("triton", 1, 1, [5 * MS] * 100)
    bad, bad_histograms = made.trial(
        "triton", 1, 2, [1 * MS] * 900, verdict="INVALID", reasons=("9 wrong answers",)
    )
    histograms = {h.trial: h for h in (good_histograms, bad_histograms)}

    def point(*trials: Trial) -> Point:
        found = summarise(
            made.manifest(backends=("triton",), levels=(1,)),
            {"triton": made.record("triton")},
            trials,
            histograms.__getitem__,
        )
        return found.backends[0].points[0]

    half = point(good, bad)
    assert (half.verdict, half.samples) == ("INVALID", 100)
    assert half.reasons == ("9 wrong answers (1 of 2 repeats)",)
    assert half.outcomes["ok"] == 1000
    assert point(good).verdict == "VALID"


def test_a_run_is_complete_when_every_trial_of_every_measured_backend_is_there() -> None:
    assert summary({"triton": [100, 100, 100]}).complete
    trials = [made.trial("triton", 1, 1, [5 * MS] * 100)]
    found = summarise(
        made.manifest(backends=("triton", "fastapi"), levels=(1,), repeats=1),
        {
            "triton": made.record("triton"),
            "fastapi": made.record("fastapi", excluded="it did not start"),
        },
        [trial for trial, _ in trials],
        {h.trial: h for _, h in trials}.__getitem__,
    )
    assert found.complete
    assert found.ranking.unranked == {"fastapi": "it did not start"}
