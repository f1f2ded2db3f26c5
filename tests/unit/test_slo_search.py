"""The path of a search: short, right on servers that can be computed, and never fooled twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from random import Random
from statistics import mean

import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import assume, given
from hypothesis import strategies as st

from benchmarks.synthetic import WINDOWS, SyntheticServer, population, probes, searched
from loadtest.confidence import Samples
from loadtest.histogram import new_histogram
from loadtest.objective import Objectives, Percentile, parse_objectives
from loadtest.searched import ProbeVerdict
from loadtest.slo.bracket import Windows, bare_misses, scope_of, utilisation_for
from loadtest.slo.search import (
    MOST_PROBES,
    PRECISION,
    Answer,
    Probe,
    Scope,
    Search,
)
from serving.errors import LoadError

WIDE = Scope(first_rps=100.0, lowest_rps=10.0, highest_rps=1e5)


def follow(scope: Scope, verdict: Callable[[float], ProbeVerdict]) -> Search:
    search = Search(scope)
    while search.next_rps is not None:
        search = search.told(verdict(search.next_rps))
    return search


def after(scope: Scope, verdicts: Sequence[ProbeVerdict]) -> Search:
    """The search told these one after another, at the rates that it asks for."""
    search = Search(scope)
    for verdict in verdicts:
        search = search.told(verdict)
    return search


rates = st.floats(10.0, 75_000.0)
verdicts = st.sampled_from(["met", "costly", "missed", "void"])


@given(first=rates, crossing=rates)
def test_a_crossing_anywhere_in_the_range_is_found_within_5_percent(
    first: float, crossing: float
) -> None:
    """1 to 7,500 is the widest range for which twelve probes are promised."""
    scope = Scope(first, lowest_rps=10.0, highest_rps=75_000.0)
    search = follow(scope, lambda rate: "met" if rate <= crossing else "missed")
    answer = search.answer
    assert len(search.path) <= MOST_PROBES
    if crossing == 75_000.0:
        assert answer.kind == "at least"
        assert answer.met_rps == 75_000.0
        return
    assert answer.kind == "found"
    assert answer.met_rps is not None
    assert answer.missed_rps is not None
    assert answer.met_rps <= crossing < answer.missed_rps <= PRECISION * answer.met_rps


@given(scope_first=rates, told=st.lists(verdicts, min_size=MOST_PROBES, max_size=MOST_PROBES))
def test_no_answers_of_a_server_can_fool_or_prolong_the_search(
    scope_first: float, told: list[ProbeVerdict]
) -> None:
    """Whatever a server answers: it ends, stays where it can measure, and what it names as met is
    not above a miss, unless it met twice.
    """
    scope = Scope(scope_first, lowest_rps=10.0, highest_rps=75_000.0)
    search, left = Search(scope), iter(told)
    while search.next_rps is not None:
        assert scope.lowest_rps <= search.next_rps <= scope.highest_rps
        search = search.told(next(left))
    answer = search.answer
    assert len(search.path) <= MOST_PROBES
    if answer.met_rps is None:
        return
    kept = [p.rate_rps for p in search.path if p.verdict in ("met", "costly")]
    missed = [p.rate_rps for p in search.path if p.verdict == "missed"]
    confirmed = max((rate for rate in kept if kept.count(rate) > 1), default=0.0)
    assert answer.met_rps in kept
    assert all(rate > answer.met_rps or rate <= confirmed for rate in missed)
    assert answer.missed_rps is None or answer.missed_rps > answer.met_rps


@given(told=st.lists(verdicts, max_size=MOST_PROBES))
def test_a_void_rate_is_repeated_once_at_most(told: list[ProbeVerdict]) -> None:
    search = Search(WIDE)
    for verdict in told:
        if search.next_rps is None:
            break
        search = search.told(verdict)
    for index, (before, now) in enumerate(pairwise(search.path)):
        if before.verdict == "void" and search.path.index(before) == index:
            assert now.rate_rps == before.rate_rps
    rates_of_voids = [p.rate_rps for p in search.path if p.verdict == "void"]
    assert all(rates_of_voids.count(rate) <= 2 for rate in rates_of_voids)


def test_a_population_of_servers_takes_ten_probes_at_most_on_average() -> None:
    taken = [
        len(searched(server, limit_s, 459, Random(index)).path)
        for index, (server, limit_s) in enumerate(population(2000, seed=1))
    ]
    assert mean(taken) <= 10
    assert max(taken) < 13


@given(
    capacity_rps=st.floats(50.0, 20_000.0),
    service=st.floats(0.5, 8.0),
    waiting=st.floats(0.5, 5.0),
    room=st.floats(1.2, 30.0),
    guess=st.floats(0.1, 0.9),
)
def test_the_answer_of_a_queue_lies_within_5_percent_of_where_its_tail_crosses(
    capacity_rps: float, service: float, waiting: float, room: float, guess: float
) -> None:
    server = SyntheticServer(
        capacity_rps, service / capacity_rps, waiting / capacity_rps, guess=guess
    )
    limit_s = room * server.service_s
    crossing_rps = server.crossing_rps(limit_s)
    assume(crossing_rps > WINDOWS.lowest_rps(459))
    answer = searched(server, limit_s, 459, Random(1)).answer
    assert answer.kind == "found"
    assert answer.met_rps is not None
    # The tail and where it crosses are computed in opposite directions, to within a rounding.
    assert crossing_rps / PRECISION < answer.met_rps * (1 + 1e-9)
    assert answer.met_rps <= crossing_rps * (1 + 1e-9)


def test_a_cliff_is_found() -> None:
    """A server that is flat up to its capacity and lost beyond it."""
    answer = follow(WIDE, lambda rate: "met" if rate < 437 else "missed").answer
    assert answer.kind == "found"
    assert answer.met_rps is not None
    assert 437 / PRECISION <= answer.met_rps < 437


def test_what_the_bare_server_misses_is_not_reachable_after_one_probe() -> None:
    search = after(Scope(100.0, 10.0, 1e5, hopeless=True), ["missed"])
    assert search.next_rps is None
    assert search.answer.kind == "not reachable"
    assert "no lower rate can help" in search.answer.reasons[0]


def test_a_bare_server_that_seemed_to_miss_is_searched_when_the_first_probe_meets() -> None:
    scope = Scope(100.0, 10.0, 1e5, hopeless=True)
    assert follow(scope, lambda rate: "met" if rate < 300 else "missed").answer.kind == "found"


def test_a_miss_at_every_rate_is_not_reachable_and_told_twice_at_the_lowest() -> None:
    search = follow(WIDE, lambda _: "missed")
    assert search.answer.kind == "not reachable"
    assert [probe.rate_rps for probe in search.path][-2:] == [10.0, 10.0]


def test_above_the_generators_ceiling_nothing_is_probed_and_the_answer_is_at_least() -> None:
    search = follow(Scope(700.0, 10.0, 1000.0), lambda _: "met")
    assert max(probe.rate_rps for probe in search.path) == 1000.0
    assert search.answer.kind == "at least"
    assert search.answer.met_rps == 1000.0
    assert "the generator itself" in search.answer.reasons[0]


def test_one_hiccup_is_not_the_answer() -> None:
    """The first probe, at 100, misses by chance; the crossing is at 140."""
    count = iter(range(100))
    search = follow(WIDE, lambda rate: "met" if next(count) and rate <= 140 else "missed")
    assert search.answer.met_rps is not None
    assert 140 / PRECISION <= search.answer.met_rps <= 140
    assert any("overruled" in reason for reason in search.answer.reasons)


def test_a_met_rate_above_a_miss_counts_when_its_repeat_is_met() -> None:
    path = (Probe(100.0, "missed"), Probe(80.0, "met"), Probe(130.0, "met"))
    search = Search(WIDE, path)
    assert search.next_rps == 130.0
    assert search.told("met").answer.met_rps == 130.0
    assert search.told("missed").answer.met_rps == 80.0


def test_the_end_that_missed_is_measured_twice() -> None:
    path = (Probe(100.0, "met"), Probe(104.0, "missed"))
    search = Search(WIDE, path)
    assert search.next_rps == 104.0
    assert search.told("missed").answer == Answer("found", 100.0, 104.0)


def test_a_rate_that_is_void_twice_bounds_the_answer_and_is_named() -> None:
    path = (Probe(100.0, "met"), Probe(104.0, "void"), Probe(104.0, "void"))
    answer = Search(WIDE, path).answer
    assert answer == Answer("at least", 100.0, None, ("104 requests/s could not be measured",))
    beyond = (Probe(110.0, "missed"), *path)
    assert Search(WIDE, beyond).answer.missed_rps == 110.0


def test_energy_alone_sends_the_search_upwards_and_is_not_reachable_at_its_end() -> None:
    search = follow(WIDE, lambda rate: "costly" if rate < 300 else "missed")
    assert max(probe.rate_rps for probe in search.path) > 300
    assert search.answer.kind == "not reachable"
    assert "only the energy misses" in search.answer.reasons[0]


def test_energy_that_a_higher_rate_pays_for_is_found() -> None:
    def verdict(rate: float) -> ProbeVerdict:
        return "missed" if rate > 300 else "met" if rate > 200 else "costly"

    answer = follow(WIDE, verdict).answer
    assert answer.kind == "found"
    assert answer.met_rps is not None
    assert 300 / PRECISION <= answer.met_rps <= 300


def test_a_path_that_is_given_again_goes_on_where_it_stopped() -> None:
    whole = follow(WIDE, lambda rate: "met" if rate <= 437 else "missed")
    for length in range(len(whole.path)):
        assert Search(WIDE, whole.path[:length]).next_rps == whole.path[length].rate_rps


def test_twelve_probes_that_were_not_enough_are_told() -> None:
    """Two rates at a time void: half of the probes say nothing."""
    count = iter(range(100))
    search = follow(
        WIDE, lambda rate: "void" if next(count) % 2 == 0 else "met" if rate < 9e4 else "missed"
    )
    assert len(search.path) == MOST_PROBES
    assert search.answer.kind == "open"
    assert "12 probes were not enough" in search.answer.reasons


def test_the_number_of_probes_can_be_asked_of_a_formula() -> None:
    assert 1 <= probes(SyntheticServer(1000.0, 0.002, 0.001), limit_s=0.010) <= MOST_PROBES
    assert probes(SyntheticServer(1000.0, 0.020, 0.001), limit_s=0.010) == 1


def histogram(latencies_ms: Sequence[float]) -> HdrHistogram:
    found = new_histogram()
    for latency_ms in latencies_ms:
        found.record_value(round(latency_ms * 1e6))
    return found


def samples(latencies_ms: Sequence[float]) -> Samples:
    return Samples(histogram(latencies_ms), new_histogram(), ())


P99 = parse_objectives(["p99<=50ms"])


def p99(limit_ms: float) -> Percentile:
    return Percentile("p99", 0.99, round(limit_ms * 1e6))


def test_a_window_has_eight_times_the_floor_within_its_bounds() -> None:
    windows = Windows(5.0, 60.0)
    assert windows.length_s(100.0, 459) == pytest.approx(36.72)
    assert windows.length_s(1000.0, 459) == 5.0
    assert windows.length_s(10.0, 459) == 60.0


def test_the_lowest_rate_has_enough_samples_whatever_poisson_draws() -> None:
    """459 lie 3.6 standard deviations below the mean: fewer in one of 6,000 windows."""
    rate_rps = Windows(5.0, 60.0).lowest_rps(459)
    expected = 60 * rate_rps
    assert expected - 3.6 * math.sqrt(expected) >= 459
    assert expected < 1.25 * 459


def test_the_bare_server_misses_only_when_its_lower_bound_is_above_the_limit() -> None:
    """Of 300 requests 3 take long. That p99 is above the limit is likely and not yet sure."""
    few = samples([5.0] * 297 + [60.0] * 3)
    many = samples([5.0] * 280 + [60.0] * 20)
    assert not bare_misses(p99(50), few)
    assert bare_misses(p99(50), many)
    assert not bare_misses(p99(70), many)


def test_a_pause_of_the_machine_does_not_make_a_search_hopeless() -> None:
    """20 of 600 requests are slow, all in one of three seconds: the other two say otherwise."""
    calm, paused = histogram([5.0] * 200), histogram([5.0] * 180 + [60.0] * 20)
    together = histogram([5.0] * 580 + [60.0] * 20)
    assert bare_misses(p99(50), Samples(together, new_histogram(), ()))
    seconds = Samples(together, new_histogram(), [calm, paused, calm])
    assert not bare_misses(p99(50), seconds)


def test_the_first_guess_nears_the_capacity_as_the_limit_grows() -> None:
    guesses = [utilisation_for(p99(limit), 5e6, 200.0) for limit in (5, 20, 40, 100, 1e6)]
    assert guesses == sorted(guesses)
    assert guesses[0] == 0.1
    assert guesses[-1] == 0.9


def scope(objectives: Objectives = P99, **changes: object) -> Scope:
    given: dict[str, object] = {
        "bare": samples([5.0] * 600),
        "capacity_rps": 200.0,
        "ceiling_rps": 20_000.0,
        "windows": Windows(5.0, 60.0),
        "hopeless": False,
    }
    return scope_of(objectives, **{**given, **changes})  # type: ignore[arg-type]


def test_the_search_stays_below_what_makes_a_window_client_bound() -> None:
    assert scope().highest_rps == pytest.approx(0.9 * 0.7 * 20_000)
    assert scope(ceiling_rps=None).highest_rps == math.inf


def test_a_hopeless_search_begins_low() -> None:
    assert scope(hopeless=True).first_rps == pytest.approx(20.0)
    assert scope().first_rps > 100


def test_a_server_too_slow_for_the_percentile_is_told_before_any_probe() -> None:
    with pytest.raises(LoadError, match=r"p99 needs 9.08 requests/s .* answers about 4"):
        scope(capacity_rps=4.0)
    with pytest.raises(LoadError, match=r"the generator can send about 6\.3"):
        scope(ceiling_rps=10.0)
