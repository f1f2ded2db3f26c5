"""Trends, drifts and spreads, on series whose right verdict is plain."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.steadiness import judge_steadiness, trend_of
from loadtest.warmup import Warmth


def test_a_rising_series_has_its_drift_and_a_small_p() -> None:
    found = trend_of([100 + 2 * i for i in range(20)])
    assert found.drift == pytest.approx(38 / 119, rel=0.01)
    assert found.p_value < 1e-6


def test_independent_noise_is_called_a_trend_as_rarely_as_promised() -> None:
    rng = np.random.default_rng(8)
    called = [trend_of(rng.normal(100, 5, 20)).p_value < 0.01 for _ in range(2000)]
    assert np.mean(called) < 0.015


def test_autocorrelated_noise_is_called_a_trend_less_often_than_without_correction() -> None:
    rng = np.random.default_rng(9)

    def walk() -> np.ndarray:
        values = np.zeros(40)
        for i in range(1, 40):
            values[i] = 0.6 * values[i - 1] + rng.normal()
        return 100 + values

    series = [walk() for _ in range(400)]
    corrected = np.mean([trend_of(s).p_value < 0.01 for s in series])
    plain = np.mean([_uncorrected(s) < 0.01 for s in series])
    assert corrected < 0.6 * plain


def _uncorrected(series: np.ndarray) -> float:
    from scipy.stats import kendalltau

    return float(kendalltau(range(len(series)), series).pvalue)


def test_steady_counts_are_steady() -> None:
    rng = np.random.default_rng(10)
    found = judge_steadiness(rng.poisson(50, 30).tolist(), rng.normal(20, 2, 30).tolist(), "p99")
    assert (found.reasons, found.notes) == ((), ())


def test_alternating_latency_is_not_steady() -> None:
    """50 and 150 ms in turn, two seconds each, one user: 20 and 7 answers per second."""
    found = judge_steadiness([20, 20, 7, 7] * 2, [50, 50, 150, 150] * 2, "p50")
    assert "between 7 and 20 answers in one second" in found.reasons[0]


def test_a_falling_rate_and_a_rising_tail_are_both_told() -> None:
    rates = [1000 - 10 * i for i in range(12)]
    tails = [5 + 0.2 * i for i in range(12)]
    first, second = judge_steadiness(rates, tails, "p99").reasons
    assert "throughput drifts by -12%" in first
    assert "p99 response time drifts by +36%" in second


def test_a_small_drift_is_steady_however_significant() -> None:
    assert not judge_steadiness([1000 + i for i in range(30)], [], "p99").reasons


def test_a_short_run_says_that_it_was_not_tested() -> None:
    found = judge_steadiness([50, 51, 50], [5.0, 5.0, 5.0], "p99")
    assert found.notes == ("too short to test for a trend: 3 whole seconds",)


def test_a_slow_first_tenth_is_told() -> None:
    found = judge_steadiness([50] * 20, [9.0, 9.0] + [5.0] * 18, "p99")
    assert "the first 2 s were slower (p99 9 against 5 ms)" in found.notes[0]


def test_warm_up_ends_when_the_last_third_is_like_the_one_before() -> None:
    warmth = Warmth()
    warmth.add(np.array([900, 500, 300], np.int64))
    assert not warmth.settled(users=1, elapsed_s=1.0)
    warmth.add(np.array([101, 100, 99, 100, 101, 100], np.int64))
    assert not warmth.settled(users=1, elapsed_s=0.4)
    assert not warmth.settled(users=5, elapsed_s=1.0)
    assert warmth.settled(users=4, elapsed_s=1.0)
