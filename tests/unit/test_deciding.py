"""Verdicts on servers that are known, because they are a queue in virtual time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.deciding import binomial_interval
from benchmarks.queues import PlainSamples, Queue, Started, open_window
from benchmarks.virtual import (
    FIRST,
    SECOND,
    ranked,
    search_settings,
    search_side,
    summarised,
    sweep_settings,
    sweep_side,
    winner,
)
from loadtest.analysis import samples_of
from loadtest.objective import Evidence
from loadtest.ranking import rank_searches
from loadtest.results import BackendRecord, BackendSummary, Ranking
from loadtest.searched import AnswerKind, AnswerRecord, SearchRecord
from loadtest.slo.record import record_of
from loadtest.slo.state import state_of
from loadtest.summary import summarise
from loadtest.trial import StopRule
from tests import sample_trials as made

QUEUE = Queue()
ASKED = "p90<=20ms"
REMOTE = "remote:http://127.0.0.1:8000"


def rng(*names: int) -> np.random.Generator:
    return np.random.default_rng(names)


def searches(first: Queue, second: Queue) -> Ranking:
    settings = search_settings(1, ASKED)
    return ranked(
        settings,
        [
            search_side(settings, FIRST, first, rng(1), plain=True),
            search_side(settings, SECOND, second, rng(2), plain=True),
        ],
    )


def sweeps(first: Queue, second: Queue, seed: int) -> Ranking:
    settings = sweep_settings(1000 * seed)
    return ranked(
        settings,
        [
            sweep_side(settings, FIRST, first, rng(seed, 1), plain=True),
            sweep_side(settings, SECOND, second, rng(seed, 2), plain=True),
        ],
    )


def test_searches_tell_a_much_slower_server_and_not_the_same_one() -> None:
    assert winner(searches(QUEUE, QUEUE)) is None
    assert winner(searches(QUEUE, QUEUE.slowed(0.3))) == FIRST
    assert winner(searches(QUEUE.slowed(0.3), QUEUE)) == SECOND


@pytest.mark.parametrize("seed", [1, 2])
def test_sweeps_tell_a_server_slower_by_a_tenth_and_not_the_same_one(seed: int) -> None:
    assert winner(sweeps(QUEUE, QUEUE, seed)) is None
    assert winner(sweeps(QUEUE, QUEUE.slowed(0.1), seed)) == FIRST
    assert winner(sweeps(QUEUE.slowed(0.1), QUEUE, seed)) == SECOND


def test_what_is_spared_for_speed_changes_no_answer_and_no_ranking() -> None:
    settings = search_settings(3, ASKED, repeats=1)
    whole, plain = (
        search_side(settings, FIRST, QUEUE, rng(5), plain=plain).searches[0]
        for plain in (False, True)
    )
    assert [(one.rate_rps, one.verdict) for one in whole.probes] == [
        (one.rate_rps, one.verdict) for one in plain.probes
    ]
    assert whole.answer == plain.answer
    settings = sweep_settings(3).model_copy(update={"levels": (1,), "duration_s": 1.0})
    sides = [
        [sweep_side(settings, label, QUEUE, rng(6), plain=plain) for label in (FIRST, SECOND)]
        for plain in (False, True)
    ]
    assert summarised(settings, sides[0]).sentence == ranked(settings, sides[1]).sentence


def test_no_verdict_is_not_taken_for_no_difference() -> None:
    settings = sweep_settings(1, repeats=2)
    sides = [sweep_side(settings, name, QUEUE, rng(1), plain=True) for name in (FIRST, SECOND)]
    with pytest.raises(ValueError, match="fewer than 3 repeats"):
        winner(ranked(settings, sides))


def test_a_server_that_cannot_reach_the_objective_is_not_ranked() -> None:
    """30 ms of service against a limit of 20 ms."""
    ranking = searches(Queue(service_s=0.030), QUEUE)
    assert [row.backend for row in ranking.rows] == [SECOND]
    assert ranking.unranked[FIRST].startswith("Not reachable")
    assert ranking.winner is None


def test_searches_whose_windows_are_all_invalid_are_not_ranked() -> None:
    settings = search_settings(1, ASKED)
    good, bad = (
        search_side(settings, label, QUEUE, rng(1), plain=True) for label in (FIRST, SECOND)
    )
    why = {"verdict": "INVALID", "reasons": ("client-bound: the generator used 97% of its CPU",)}
    seen = [Evidence(one.trial.model_copy(update=why), one.evidence.samples) for one in bad.kept]
    searched = [record_of(state_of(settings, seen, SECOND, repeat)) for repeat in range(1, 6)]
    ranking = ranked(settings, [good, replace(bad, searches=searched)])
    assert [row.backend for row in ranking.rows] == [FIRST]
    assert SECOND in ranking.unranked


def test_a_sweep_whose_windows_are_all_invalid_is_not_ranked() -> None:
    why: dict[str, object] = {"verdict": "INVALID", "reasons": ("client-bound",)}
    ranking = swept((FIRST, SECOND), changes={SECOND: why})
    assert [row.backend for row in ranking.rows] == [FIRST]
    assert ranking.unranked == {SECOND: "no VALID point"}


def swept(
    labels: Sequence[str],
    facts: dict[str, dict[str, str]] | None = None,
    changes: dict[str, dict[str, object]] | None = None,
    **settings: object,
) -> Ranking:
    """Three repeats at one level; the first serves most."""
    manifest = made.manifest(backends=tuple(labels), levels=(1,), **settings)
    kept = [
        made.trial(label, 1, repeat, [10_000_000] * (900 - 200 * place + repeat))
        for place, label in enumerate(labels)
        for repeat in (1, 2, 3)
    ]
    told = [trial.model_copy(update=(changes or {}).get(trial.backend, {})) for trial, _ in kept]
    histograms = {one.trial: one for _, one in kept}
    records: dict[str, BackendRecord] = {
        label: made.record(label, facts=own) for label, own in (facts or {}).items()
    }
    return summarise(manifest, records, told, histograms.__getitem__).ranking


def test_a_server_elsewhere_is_ranked_beside_one_of_ours_only_when_asked() -> None:
    ranking = swept((FIRST, REMOTE))
    assert [row.backend for row in ranking.rows] == [FIRST]
    assert "CPU share: the run's against unknown" in ranking.unranked[REMOTE]
    asked = swept((FIRST, REMOTE), rank_unlike=True)
    assert [row.backend for row in asked.rows] == [FIRST, REMOTE]
    assert asked.winner == FIRST


def test_other_providers_are_ranked_together_only_when_asked() -> None:
    facts = {FIRST: {"provider": "CPU"}, SECOND: {"provider": "CUDA"}}
    ranking = swept((FIRST, SECOND), facts)
    assert "provider: CPU against CUDA" in ranking.unranked[SECOND]
    assert swept((FIRST, SECOND), facts, rank_unlike=True).winner == FIRST
    alike = {label: {"provider": "CPU"} for label in (FIRST, SECOND)}
    assert swept((FIRST, SECOND), alike).winner == FIRST


def answers(
    label: str, rates_rps: Sequence[float], kind: AnswerKind = "found"
) -> list[SearchRecord]:
    return [
        SearchRecord(
            backend=label,
            repeat=repeat,
            objectives=("p99<=20ms",),
            complete=True,
            closed=(),
            probes=(),
            answer=AnswerRecord(
                kind=kind, rate_rps=rate, missed_rps=None, sentence="It is so.", reasons=()
            ),
        )
        for repeat, rate in enumerate(rates_rps, 1)
    ]


def rank(*each: list[SearchRecord], out: dict[str, str] | None = None) -> Ranking:
    backends = [
        BackendSummary(
            label=own[0].backend,
            facts={},
            warnings=(),
            parity=None,
            start_s=None,
            excluded=None,
            points=(),
        )
        for own in each
    ]
    return rank_searches(backends, [one for own in each for one in own], out or {})


def test_a_lower_bound_is_ranked_first_or_not_at_all() -> None:
    found = answers("a", (100.0, 101.0, 99.0))
    below = rank(found, answers("b", (50.0, 51.0, 49.0), "at least"))
    assert [row.backend for row in below.rows] == ["a"]
    assert below.unranked["b"].startswith("it serves at least 50.0")
    assert below.winner is None
    above = rank(found, answers("b", (200.0, 201.0, 199.0), "at least"))
    assert above.winner == "b"


def test_searches_of_unlike_servers_are_not_ranked() -> None:
    ranking = rank(
        answers("a", (100.0, 101.0, 99.0)),
        answers("b", (50.0, 51.0, 49.0)),
        out={"b": "unlike"},
    )
    assert [row.backend for row in ranking.rows] == ["a"]
    assert ranking.unranked == {"b": "unlike"}


def test_a_tie_names_all_that_are_tied_and_no_other() -> None:
    ranking = rank(
        answers("a", (100.0, 103.0, 98.0)),
        answers("b", (99.0, 104.0, 97.0)),
        answers("c", (50.0, 51.0, 49.0)),
        answers("d", (101.0, 99.0, 98.0)),
    )
    assert ranking.winner is None
    assert ranking.sentence.startswith("No significant difference between a, b and d:")


def test_half_of_the_searches_found_are_too_few_to_be_ranked() -> None:
    lost = answers("b", (100.0, 101.0)) + [
        one.model_copy(update={"answer": one.answer.model_copy(update={"rate_rps": None})})
        for one in answers("b", (1.0, 1.0))
    ]
    ranking = rank(answers("a", (100.0, 101.0, 99.0)), lost)
    assert "b" in ranking.unranked


def test_the_queue_answers_as_one_worker_does_request_by_request() -> None:
    due_ns = np.sort(rng(1).integers(0, 10**9, 500))
    found = Started(QUEUE, rng(2)).answered(due_ns)
    service_s, free_s = Started(QUEUE, rng(2))._service_s(500), 0.0
    for due, took_s, done in zip(due_ns, service_s, found, strict=True):
        free_s = max(due / 1e9, free_s) + took_s
        assert done == pytest.approx((free_s + QUEUE.way_s) * 1e9, abs=10)


def test_samples_without_histograms_are_those_of_histograms() -> None:
    settings = search_settings(1)
    never = StopRule(percentiles=((0.99, 10**12),), failures=0.0)
    window = open_window(QUEUE.started(rng(3)), settings, 380.0, never, told=True)
    plain, whole = PlainSamples(*window.inside()), samples_of(window.output().response_time)
    assert plain.count == whole.count
    for quantile in (0.5, 0.9, 0.95, 0.99):
        assert plain.percentile(quantile) == whole.percentile(quantile)


def test_a_lost_window_ends_when_production_s_rule_says_so() -> None:
    settings = search_settings(1)
    rule = StopRule(percentiles=((0.99, 20_000_000),), failures=0.001)
    told, plain = (
        open_window(QUEUE.started(rng(4)), settings, 700.0, rule, told=told)
        for told in (True, False)
    )
    assert told.cut is not None
    assert "p99 allows" in told.cut
    assert 0 <= plain.length_s - told.length_s < 0.11
    assert told.length_s < settings.duration_s / 2


def test_the_interval_of_a_share_is_clopper_and_pearson_s() -> None:
    """With none of n, the largest share that gives none at all in 2.5% of cases."""
    low, high = binomial_interval(0, 20)
    assert low == 0
    assert (1 - high) ** 20 == pytest.approx(0.025)
    low, high = binomial_interval(20, 20)
    assert high == 1
    assert low**20 == pytest.approx(0.025)
