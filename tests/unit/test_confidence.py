"""Bounds of percentiles: their floors, and that they hold as often as they say."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.confidence import (
    Samples,
    bounding_ranks,
    relative_width,
    sample_floor,
    variance_inflation,
)
from loadtest.histogram import Tally, new_histogram

FLOORS = {0.9: 44, 0.95: 90, 0.99: 459, 0.999: 4603, 0.9999: 66381}


@pytest.mark.parametrize(("quantile", "floor"), FLOORS.items())
def test_sample_floor(quantile: float, floor: int) -> None:
    assert sample_floor(quantile) == floor


@pytest.mark.parametrize("quantile", [0.9, 0.95, 0.99, 0.999])
def test_the_floor_is_the_fewest_samples_with_an_upper_bound(quantile: float) -> None:
    floor = sample_floor(quantile)
    assert 1 - quantile**floor >= 0.99 > 1 - quantile ** (floor - 1)
    assert bounding_ranks(floor, quantile)[1] == floor
    assert bounding_ranks(floor - 1, quantile)[1] is None


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.99])
def test_bounds_hold_at_least_as_often_as_they_say(quantile: float) -> None:
    rng = np.random.default_rng(11)
    truth = -np.log(1 - quantile)
    drawn = np.sort(rng.exponential(1.0, (4000, 600)), axis=1)
    low, high = bounding_ranks(600, quantile)
    assert high is not None
    # 99% each, less three standard errors of 4,000 trials.
    least = 0.99 - 3 * np.sqrt(0.99 * 0.01 / 4000)
    assert (drawn[:, low - 1] <= truth).mean() >= least
    assert (drawn[:, high - 1] >= truth).mean() >= least


def test_slow_requests_that_come_together_widen_the_bounds() -> None:
    rng = np.random.default_rng(2)
    count, windows = 500, 20
    alone = rng.random((windows, count)) < 0.05
    together = np.zeros((windows, count), bool)
    together[0] = True
    totals = [count] * windows
    independent = variance_inflation(alone.sum(axis=1).tolist(), totals)
    clustered = variance_inflation(together.sum(axis=1).tolist(), totals)
    assert independent < 2
    assert clustered > 100
    narrow, wide = bounding_ranks(10_000, 0.95, 1.0), bounding_ranks(10_000, 0.95, 16.0)
    assert wide[0] < narrow[0] < 9_500 < (narrow[1] or 0) < (wide[1] or 0)


def test_correlated_windows_are_bounded_as_often_as_independent_ones() -> None:
    """Each second has its own level; bounds that ignore it hold far less often than 99%."""
    rng = np.random.default_rng(3)
    levels = rng.lognormal(0, 0.5, (300, 30))
    drawn = levels[:, :, None] * rng.exponential(1.0, (300, 30, 100))
    truth = np.quantile(rng.lognormal(0, 0.5, 10**6) * rng.exponential(1.0, 10**6), 0.9)
    held = {"naive": 0, "widened": 0}
    for run in drawn:
        ordered = np.sort(run.ravel())
        value = ordered[int(0.9 * len(ordered)) - 1]
        factor = variance_inflation((run > value).sum(axis=1).tolist(), [100] * 30)
        for name, inflation in (("naive", 1.0), ("widened", factor)):
            low, high = bounding_ranks(len(ordered), 0.9, inflation)
            assert high is not None
            held[name] += bool(ordered[low - 1] <= truth <= ordered[high - 1])
    assert held["naive"] < 0.9 * 300
    assert held["widened"] > 0.94 * 300


def samples(values_ms: np.ndarray, given_up_ms: float | None = None, share: float = 0.0) -> Samples:
    answered, given_up = Tally(), Tally()
    cut = int(len(values_ms) * share)
    answered.add((values_ms[cut:] * 1e6).astype(np.int64))
    if given_up_ms:
        given_up.add(np.full(cut, int(given_up_ms * 1e6)))
    return Samples(answered.histogram(), given_up.histogram(), ())


def test_ranks_are_exact_to_a_thousandth() -> None:
    values = np.random.default_rng(4).lognormal(1, 1, 5000)
    found = samples(values)
    for rank in (1, 17, 2500, 4950, 5000):
        assert found.at_rank(rank) / 1e6 == pytest.approx(
            np.sort(values)[rank - 1], rel=1e-3, abs=0.0006
        )


def test_a_given_up_request_takes_the_upper_bound_away() -> None:
    found = samples(np.full(1000, 5.0), given_up_ms=100.0, share=0.02)
    p95, p99 = found.percentile(0.95), found.percentile(0.99)
    assert p95 is not None
    assert p99 is not None
    assert (p95.at_least, p99.at_least, p99.high) == (False, True, None)


def test_no_samples_give_no_percentile() -> None:
    found = Samples(new_histogram(), new_histogram(), ())
    assert found.percentile(0.5) is None


def test_width_shrinks_with_samples() -> None:
    rng = np.random.default_rng(6)
    few, many = Tally(), Tally()
    few.add((rng.lognormal(2, 0.3, 600) * 1e6).astype(np.int64))
    many.add((rng.lognormal(2, 0.3, 60_000) * 1e6).astype(np.int64))
    width_few, width_many = (relative_width(t.histogram(), 0.99) for t in (few, many))
    assert width_few is not None
    assert width_many is not None
    assert width_many < width_few / 4
