"""Whether B differs from A: told seldom where it does not, and nearly always where it does."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import ttest_ind

from loadtest.significance import CONFIDENCE, Floats, compare, log_interval

TIMES = 20_000
SHARE_BUT_FOR_CHANCE = 0.05 + 3 * math.sqrt(0.05 * 0.95 / TIMES)
"""What at most 5% may look like in so many simulations."""

NORMAL = "normal"
SKEWED = "skewed"
OUTLIERS = "outliers"


def noisy(kind: str, noise: float, repeats: int, rng: np.random.Generator) -> Floats:
    """Throughputs around 1, one row per simulation; skewed noise and outliers slow down."""
    shape = (TIMES, repeats)
    if kind == SKEWED:
        return 1 - noise * (rng.exponential(size=shape) - 1)
    found = 1 + noise * rng.standard_normal(shape)
    return (
        np.where(rng.random(shape) < 0.1, found - 4 * noise, found) if kind == OUTLIERS else found
    )


def share_of_differences(before: Floats, after: Floats) -> float:
    low, high = log_interval(np.log(before), np.log(after), CONFIDENCE)
    return float(((low > 0) | (high < 0)).mean())


@pytest.mark.parametrize("noise", [0.01, 0.05])
@pytest.mark.parametrize("kind", [NORMAL, SKEWED, OUTLIERS])
@pytest.mark.parametrize("repeats", [(3, 3), (5, 5), (10, 10), (3, 5), (3, 10), (10, 3)])
def test_the_same_is_called_different_in_at_most_one_of_twenty_cases(
    kind: str, noise: float, repeats: tuple[int, int]
) -> None:
    rng = np.random.default_rng(1)
    before, after = (noisy(kind, noise, count, rng) for count in repeats)
    assert share_of_differences(before, after) <= SHARE_BUT_FOR_CHANCE


@pytest.mark.parametrize("repeats", [3, 5, 10])
def test_the_percentile_bootstrap_would_cry_wolf(repeats: int) -> None:
    """Why it is not used: at any of these numbers of repeats it is wrong more than 1.5 x 5%."""
    rng = np.random.default_rng(2)
    before, after = (noisy(NORMAL, 0.02, repeats, rng)[:1000] for _ in range(2))
    drawn = [rng.integers(repeats, size=(1000, repeats)) for _ in range(2)]
    ratios = after[:, drawn[0]].mean(axis=2) / before[:, drawn[1]].mean(axis=2)
    low, high = np.quantile(ratios, [0.025, 0.975], axis=1)
    assert ((low > 1) | (high < 1)).mean() > 0.075


@pytest.mark.parametrize("change", [0.9, 1.1])
def test_a_tenth_is_found_at_two_percent_of_noise_and_five_repeats(change: float) -> None:
    rng = np.random.default_rng(3)
    before, after = (noisy(NORMAL, 0.02, 5, rng) for _ in range(2))
    assert share_of_differences(before, change * after) > 0.99


def test_the_interval_holds_the_true_ratio_as_often_as_it_says() -> None:
    """Normal logarithms, five and five: 95% but for chance, and not much more."""
    rng = np.random.default_rng(4)
    before, after = (rng.normal(size=(TIMES, 5)) for _ in range(2))
    low, high = log_interval(before, after + math.log(0.9), CONFIDENCE)
    held = ((low <= math.log(0.9)) & (math.log(0.9) <= high)).mean()
    assert 1 - SHARE_BUT_FOR_CHANCE <= held <= 0.97


def test_for_equal_repeats_it_is_welch_s_test() -> None:
    before, after = [100.0, 103.0, 98.0, 101.0], [108.0, 111.0, 104.0, 110.0]
    known = ttest_ind(np.log(after), np.log(before), equal_var=False).confidence_interval(0.95)
    found = compare(before, after)
    assert found.low == pytest.approx(math.exp(known.low))
    assert found.high == pytest.approx(math.exp(known.high))
    assert found.ratio == pytest.approx(math.exp(np.log(after).mean() - np.log(before).mean()))


def test_what_is_better_depends_on_what_was_measured() -> None:
    few, many = [99.0, 100.0, 101.0], [119.0, 120.0, 121.0]
    assert compare(few, many).verdict == "faster"
    assert compare(many, few).verdict == "slower"
    assert compare(few, many, lower_is_better=True).verdict == "slower"
    assert compare(many, few, lower_is_better=True).verdict == "faster"
    assert compare(few, few[::-1]).verdict == "no significant difference"


def test_two_repeats_tell_nothing() -> None:
    found = compare([100.0, 100.1], [1.0, 1.1, 1.2])
    assert found.verdict == "too few repeats"
    assert (found.low, found.high, found.repeats) == (None, None, (2, 3))


def test_the_other_way_round_the_ratio_is_its_inverse() -> None:
    before, after = [100.0, 103.0, 98.0], [95.0, 99.0, 94.0, 93.0, 96.0]
    there, back = compare(before, after), compare(after, before)
    assert there.ratio == pytest.approx(1 / back.ratio)
    assert there.low == pytest.approx(1 / (back.high or 0))


def test_rounding_is_no_difference() -> None:
    """All repeats fell into one HDR bucket, and the other side's into the next."""
    before, after = [1.000] * 3, [1.001] * 3
    assert compare(before, after, lower_is_better=True).verdict == "slower"
    assert compare(before, after, resolution=1e-3).verdict == "no significant difference"
    assert compare(before, [1.003] * 3, resolution=1e-3, lower_is_better=True).verdict == "slower"


@pytest.mark.parametrize("values", [[], [1.0, 0.0, 1.0], [1.0, -1.0, 1.0], [1.0, math.nan, 1.0]])
def test_what_has_no_logarithm_is_refused(values: list[float]) -> None:
    with pytest.raises(ValueError, match="above 0"):
        compare([1.0, 1.0, 1.0], values)
