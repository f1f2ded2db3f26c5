"""Whether a run stayed the same from its first second to its last. Pure.

A trend must be both significant and large: Mann-Kendall's test (Mann 1945, Kendall 1975) with the
variance corrected for autocorrelation (Hamed and Rao, J. Hydrology 204, 1998), and a drift by
Sen's slope (Sen 1968) above 5% of the median.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

DRIFT_LIMIT = 0.05
SIGNIFICANCE = 0.01
SPREAD_LIMIT = 0.25
LEAST_WINDOWS = 6
"""Five values in a row all rising happen by chance in 1 of 60 orders: no test at 1% can be met."""
SLOW_START = 1.2


UNSTEADY = "not steady"
"""How every reason begins that says so."""


@dataclass(frozen=True)
class Trend:
    """Attributes: ``drift`` from first to last, as a share of the median; ``p_value`` two-sided."""

    drift: float
    p_value: float


def trend_of(series: Sequence[float]) -> Trend:
    """Mann-Kendall with Hamed and Rao's correction; at least three values."""
    values = np.array(series, float)
    count = len(values)
    pairs = list(combinations(range(count), 2))
    signs = sum(float(np.sign(values[j] - values[i])) for i, j in pairs)
    slope = float(np.median([(values[j] - values[i]) / (j - i) for i, j in pairs]))
    middle = float(np.median(values))
    drift = slope * (count - 1) / middle if middle else 0.0
    _, ties = np.unique(values, return_counts=True)
    variance = (count * (count - 1) * (2 * count + 5) - _tie_term(ties)) / 18
    variance *= _correction(values - slope * np.arange(count))
    if variance <= 0 or signs == 0:
        return Trend(drift, 1.0)
    score = (signs - math.copysign(1.0, signs)) / math.sqrt(variance)
    return Trend(drift, float(2 * ndtr(-abs(score))))


def _tie_term(ties: npt.NDArray[np.int64]) -> float:
    return float((ties * (ties - 1) * (2 * ties + 5)).sum())


def _correction(detrended: npt.NDArray[np.float64]) -> float:
    """Factor on the variance from the significant autocorrelations of the ranks; never below 1.

    Negative autocorrelation would narrow the test; a verdict should not gain from that.
    """
    count = len(detrended)
    ranks = _ranks(detrended) - (count + 1) / 2
    power = float((ranks**2).sum())
    if not power:
        return 1.0
    total = 0.0
    for lag in range(1, count - 2):
        rho = float((ranks[lag:] * ranks[:-lag]).sum()) / power
        if abs(rho) > ndtri(0.975) / math.sqrt(count):
            total += (count - lag) * (count - lag - 1) * (count - lag - 2) * rho
    return max(1.0, 1 + 2 * total / (count * (count - 1) * (count - 2)))


def _ranks(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """From 1; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    means: npt.NDArray[np.float64] = (np.cumsum(counts) - (counts - 1) / 2)[place]
    return means


@dataclass(frozen=True)
class Steadiness:
    """Attributes: ``reasons`` why the run was not steady; ``notes`` a reader should know."""

    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge_steadiness(
    completed: Sequence[int], tails_ms: Sequence[float], tail_name: str
) -> Steadiness:
    """From right answers per second and a high percentile of each second.

    Args:
        completed: one count per whole one-second window.
        tails_ms: the percentile of each window that has enough samples for it.
        tail_name: that percentile's name.
    """
    reasons = [*_spread(completed)]
    notes = []
    if len(completed) < LEAST_WINDOWS:
        notes.append(f"too short to test for a trend: {len(completed)} whole seconds")
    else:
        reasons += _trend("throughput", completed)
        if len(tails_ms) >= LEAST_WINDOWS:
            reasons += _trend(f"{tail_name} response time", tails_ms)
    notes += _slow_start(tails_ms, tail_name)
    return Steadiness(tuple(reasons), tuple(notes))


def _trend(what: str, series: Sequence[float]) -> Iterator[str]:
    found = trend_of(series)
    if found.p_value < SIGNIFICANCE and abs(found.drift) > DRIFT_LIMIT:
        yield (
            f"{UNSTEADY}: {what} drifts by {found.drift:+.0%} over the window "
            f"(Mann-Kendall p = {found.p_value:.2g})"
        )


def _spread(completed: Sequence[int]) -> Iterator[str]:
    """Variation between seconds beyond what counting independent arrivals brings with it."""
    if len(completed) < 3:
        return
    counts = np.array(completed, float)
    mean = float(counts.mean())
    excess = max(float(counts.var(ddof=1)) - mean, 0.0)
    if mean and math.sqrt(excess) / mean > SPREAD_LIMIT:
        yield (
            f"{UNSTEADY}: between {int(counts.min())} and {int(counts.max())} answers in one second"
        )


def _slow_start(tails_ms: Sequence[float], name: str) -> Iterator[str]:
    head = max(len(tails_ms) // 10, 1)
    if len(tails_ms) < 3:
        return
    first, rest = float(np.mean(tails_ms[:head])), float(np.mean(tails_ms[head:]))
    if first > SLOW_START * rest:
        yield (
            f"the first {head} s were slower ({name} {first:.3g} against {rest:.3g} ms): "
            "the server may not have been warm"
        )
