"""The end of a soak over its beginning; the interval knows that neighbours are alike. Pure.

``loadtest.significance`` takes values for independent, and windows in a row are not: heat, and
whatever else runs on the machine, last longer than a window. The variance of a mean of values with
autocorrelation rho at lag one is (1 + rho) / (1 - rho) times that of independent ones (first-order
autoregression; von Storch and Zwiers, *Statistical Analysis in Climate Research*, 1999, 6.6), so
the interval is widened by the root of that. An estimate r from n values is too low by about
(1 + 3 rho) / n (Marriott and Pope, Biometrika 41, 1954), which is put right. At ten windows a side
and no difference, 7% of soaks with rho = 0.3 show one, in place of 14%; with rho = 0.6 it is 11% in
place of 33%. ``tests/unit/test_soak.py`` simulates these rates.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from loadtest.significance import compare
from loadtest.soak.record import Ratio

LEAST_WINDOWS = 5
"""On each side, to estimate an autocorrelation at all."""

_MOST = 0.9


def ratio_of(before: Sequence[float], after: Sequence[float]) -> Ratio:
    """One value per window of each side, in their order, all above 0.

    Raises:
        ValueError: a side has no value, or one that is not above 0.
    """
    change = compare(before, after)
    low, high = change.low, change.high
    if low is not None and high is not None:
        widened = math.sqrt(inflation(before, after)) * math.log(high / low) / 2
        low, high = (change.ratio * math.exp(sign * widened) for sign in (-1, 1))
    return Ratio(
        before=_geometric(before), after=_geometric(after), ratio=change.ratio, low=low, high=high
    )


def inflation(before: Sequence[float], after: Sequence[float]) -> float:
    """Of the variance of a mean, from both sides together; 1 for too few values, never below."""
    count = min(len(before), len(after))
    if count < LEAST_WINDOWS:
        return 1.0
    power = product = 0.0
    for side in (before, after):
        logs = np.log(side)
        rest = logs - logs.mean()
        power += float((rest**2).sum())
        product += float((rest[1:] * rest[:-1]).sum())
    if power == 0:
        return 1.0
    rho = min(max((product / power * count + 1) / (count - 3), 0.0), _MOST)
    return (1 + rho) / (1 - rho)


def _geometric(values: Sequence[float]) -> float:
    """So that the ratio of both means is the ratio that is shown."""
    return math.exp(sum(map(math.log, values)) / len(values))
