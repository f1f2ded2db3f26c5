"""How sure a percentile is: distribution-free bounds from order statistics. Pure.

With n independent samples the number below the quantile q is binomial(n, q), whatever the
distribution, so two of the sorted samples bound the quantile at a chosen confidence (David and
Nagaraja, *Order Statistics*, 2003, 7.1). Each bound holds at 99% by itself.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from hdrh.histogram import HdrHistogram
from scipy.special import bdtr, bdtrc

from loadtest.histogram import buckets, new_histogram

CONFIDENCE = 0.99
ONE_IS_ENOUGH = 0.999


@cache
def sample_floor(quantile: float) -> int:
    """Fewest samples for an upper bound on ``quantile`` at 99% confidence.

    The largest of n exceeds the quantile with probability 1 - q**n: 44 samples for p90, 90 for p95,
    459 for p99, 4,603 for p99.9. Beyond p99.9 two samples must exceed it, so that no single hiccup
    of the machine becomes the answer: 66,381 for p99.99.
    """
    floor = math.ceil(math.log(1 - CONFIDENCE) / math.log(quantile))
    if quantile <= ONE_IS_ENOUGH:
        return floor
    while bdtrc(1, floor, 1 - quantile) < CONFIDENCE:
        floor += max(1, floor // 100_000)
    return floor


def bounding_ranks(count: int, quantile: float, inflation: float = 1.0) -> tuple[int, int | None]:
    """Ranks (from 1) of the samples that bound ``quantile``; no upper one when too few are left.

    ``inflation`` is how many times the variance exceeds that of independent samples; the bounds are
    those of so many fewer samples.
    """
    effective = max(int(count / inflation), 1)
    low = _binomial_quantile(1 - CONFIDENCE, effective, quantile)
    high = _binomial_quantile(CONFIDENCE, effective, quantile) + 1
    scale = count / effective
    upper = math.ceil(high * scale) if high <= effective else None
    return max(math.floor(low * scale), 1), None if upper is None or upper > count else upper


def _binomial_quantile(probability: float, count: int, share: float) -> int:
    """Smallest k with P(binomial(count, share) <= k) >= probability."""
    found: int = bisect_left(range(count), probability, key=lambda k: bdtr(k, count, share))
    return found


def variance_inflation(exceeding: Sequence[int], totals: Sequence[int]) -> float:
    """Batch means over windows: variance of their shares above a value, over the binomial one.

    1 for independent samples, above 1 when slow requests come together; never below 1 (Law and
    Kelton, *Simulation Modeling and Analysis*, 9.5.3; the share above a quantile as the mean).
    """
    above, count = np.array(exceeding, float), np.array(totals, float)
    above, count = above[count > 0], count[count > 0]
    share = float(above.sum() / max(count.sum(), 1.0))
    if len(count) < 2 or not 0 < share < 1:
        return 1.0
    between = float((count * (above / count - share) ** 2).sum()) / (len(count) - 1)
    return max(1.0, between / (share * (1 - share)))


@dataclass(frozen=True)
class Bounded:
    """One percentile in nanoseconds.

    Attributes:
        low, high: 99% bounds; ``high`` is ``None`` where the samples give none.
        at_least: the value is a time limit that was reached, so the truth is that or more.
    """

    value: int
    low: int
    high: int | None
    at_least: bool = False


class Samples:
    """All latencies of one point: answers, and waits that ended without one.

    A request that was given up after t is known to take t or longer; left out, it would make the
    tail look short.
    """

    def __init__(
        self,
        answered: HdrHistogram,
        given_up: HdrHistogram,
        windows: Sequence[HdrHistogram],
        beyond: int = 0,
    ) -> None:
        """``windows`` hold both kinds, second by second; ``beyond`` more are larger than all."""
        total = new_histogram()
        total.add(answered)
        total.add(given_up)
        self.count = int(total.total_count) + beyond
        self._known = int(total.total_count)
        self._values, counts = buckets(total)
        self._cumulative = np.cumsum(counts)
        self._least_given_up = int(given_up.get_min_value()) if given_up.total_count else None
        self._windows = [buckets(window) for window in windows]

    def at_rank(self, rank: int) -> int:
        """The ``rank``-th smallest, from 1; within 0.1% below its bucket's upper end."""
        return int(self._values[np.searchsorted(self._cumulative, min(rank, self._known))])

    @property
    def largest(self) -> int:
        return int(self._values[-1])

    def percentile(self, quantile: float, *, independent: bool = False) -> Bounded | None:
        """Nearest rank, with bounds; ``None`` below the sample floor.

        ``independent``: the bounds of independent samples, whether slow ones come together or not.
        """
        if not self._known or self.count < sample_floor(quantile):
            return None
        rank = max(math.ceil(quantile * self.count), 1)
        value = self.at_rank(rank)
        inflation = 1.0 if independent else self._inflation(value)
        low, high = bounding_ranks(self.count, quantile, inflation)
        upper = None if high is None or self._is_open(high) else self.at_rank(high)
        return Bounded(value, self.at_rank(low), upper, at_least=self._is_open(rank))

    def surely_above(self, limit: int, quantile: float) -> bool:
        """Whether the quantile is above ``limit`` at 99%, also where few samples say so.

        There must be one that is known.
        """
        low, _ = bounding_ranks(self.count, quantile, self._inflation(limit))
        return self.at_rank(low) > limit

    def _is_open(self, rank: int) -> bool:
        """Whether the sample of this rank was given up, so that its true value is unknown."""
        limit = self._least_given_up
        return rank > self._known or (limit is not None and self.at_rank(rank) >= limit)

    def _inflation(self, value: int) -> float:
        above = [int(counts[values > value].sum()) for values, counts in self._windows]
        return variance_inflation(above, [int(counts.sum()) for _, counts in self._windows])


def relative_width(histogram: HdrHistogram, quantile: float) -> float | None:
    """Half the distance between the bounds over the value; ``None`` without an upper bound."""
    found = Samples(histogram, new_histogram(), ()).percentile(quantile)
    if found is None or found.high is None:
        return None
    return (found.high - found.low) / 2 / found.value
