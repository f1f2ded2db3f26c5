"""Is B different from A? A ratio with its interval, from one value per repeat. Pure.

Repeats are the unit: samples inside one window depend on each other, and what differs from one
start of a server to the next is found only by starting it again (Kalibera and Jones, *Rigorous
Benchmarking in Reasonable Time*, ISMM 2013). So each repeat gives one value, however many requests
are behind it.

The interval is that of Welch's t (Biometrika 34, 1947) on logarithms, or Student's where that is
wider; the exponential of it is an interval of the ratio of geometric means. The bootstrap (Efron
and Tibshirani, *An Introduction to the Bootstrap*, 1993) is the usual choice, and no honest one
here: from three values it draws intervals too narrow by a half. When A and B are the same, its
percentile interval at 95% finds a difference in about 20% of cases at 3 repeats, 13% at 5 and 9% at
10, for noise of 1 to 5%, normal or skewed. Welch's stays at or below 5% when both sides have as
many repeats; at 3 against 10 it does not (6 to 8%), since it then leans on the variance of three
values, and there Student's is wider. ``tests/unit/test_significance.py`` simulates these rates.

What no interval from one sitting holds is how a machine differs from one day to the next.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit

CONFIDENCE = 0.95
LEAST_REPEATS = 3
"""Two values leave one degree of freedom: its t is 12.7, and an interval of it says nothing."""

Floats = npt.NDArray[np.float64]
Verdict = Literal["faster", "slower", "no significant difference", "too few repeats"]
"""Of B. For what is no speed, read ``faster`` as better."""


@dataclass(frozen=True)
class Change:
    """B against A.

    Attributes:
        ratio: B's geometric mean over A's.
        low, high: the interval of ``ratio``; ``None`` for too few repeats.
        repeats: values of A and of B.
    """

    ratio: float
    low: float | None
    high: float | None
    repeats: tuple[int, int]
    verdict: Verdict


def compare(
    before: Sequence[float],
    after: Sequence[float],
    *,
    lower_is_better: bool = False,
    confidence: float = CONFIDENCE,
    resolution: float = 0.0,
) -> Change:
    """One value per repeat of each side, all above 0.

    ``resolution`` is the relative step to which values were rounded: repeats that are equal for
    that reason alone are not taken for repeats without noise.

    Raises:
        ValueError: a side has no value, or one that is not above 0.
    """
    if not before or not after or not all(0 < value < math.inf for value in (*before, *after)):
        raise ValueError("each side needs values, all above 0")
    logs_before, logs_after = np.log(before), np.log(after)
    ratio = math.exp(float(logs_after.mean() - logs_before.mean()))
    repeats = len(before), len(after)
    if min(repeats) < LEAST_REPEATS:
        return Change(ratio, None, None, repeats, "too few repeats")
    bounds = log_interval(logs_before, logs_after, confidence, resolution)
    low, high = (math.exp(float(bound)) for bound in bounds)
    return Change(ratio, low, high, repeats, _verdict(low, high, lower_is_better))


def _verdict(low: float, high: float, lower_is_better: bool) -> Verdict:
    if low <= 1 <= high:
        return "no significant difference"
    return "faster" if (low > 1) != lower_is_better else "slower"


def log_interval(
    before: Floats, after: Floats, confidence: float, resolution: float = 0.0
) -> tuple[Floats, Floats]:
    """The wider of Welch's and Student's interval of the difference of means.

    ``before`` and ``after`` are logarithms of shape (..., repeats), at least two of each. Returns
    lower and upper bounds of shape (...). Rounding may move the mean of either side by half of
    ``resolution``, all its values in one direction, so that much is added at both ends.
    """
    count_a, count_b = before.shape[-1], after.shape[-1]
    variance_a, variance_b = before.var(axis=-1, ddof=1), after.var(axis=-1, ddof=1)
    difference = after.mean(axis=-1) - before.mean(axis=-1)
    half = np.maximum(
        _welch(variance_a / count_a, variance_b / count_b, count_a, count_b, confidence),
        _student(variance_a, variance_b, count_a, count_b, confidence),
    )
    half += resolution
    return difference - half, difference + half


def _welch(
    error_a: Floats, error_b: Floats, count_a: int, count_b: int, confidence: float
) -> Floats:
    """Half the width, from each mean's own squared error."""
    error = error_a + error_b
    spread = error_a**2 / (count_a - 1) + error_b**2 / (count_b - 1)
    # Without any variance the width is 0 at any degrees of freedom.
    freedom = np.divide(error**2, spread, out=np.ones_like(error), where=spread > 0)
    half: Floats = stdtrit(freedom, (1 + confidence) / 2) * np.sqrt(error)
    return half


def _student(
    variance_a: Floats, variance_b: Floats, count_a: int, count_b: int, confidence: float
) -> Floats:
    """Half the width, from one variance of both sides."""
    freedom = count_a + count_b - 2
    pooled = ((count_a - 1) * variance_a + (count_b - 1) * variance_b) / freedom
    error = np.sqrt(pooled * (1 / count_a + 1 / count_b))
    half: Floats = stdtrit(freedom, (1 + confidence) / 2) * error
    return half
