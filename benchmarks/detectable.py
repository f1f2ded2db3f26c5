"""How small a slowdown repeats can show: by the interval of ``loadtest.significance``, on noise."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from benchmarks.rows import Row, stated
from loadtest.significance import CONFIDENCE, Floats, log_interval

NOISES = (0.01, 0.02, 0.03, 0.05, 0.10, 0.16)
REPEATS = (3, 5, 10)
FOUND = 0.9
_COMPARISONS = 100_000
_PRECISION = 1e-4


def detectable_rows() -> Iterator[Row]:
    for noise in NOISES:
        for repeats in REPEATS:
            name = f"slowdown found in {FOUND:.0%}, noise {noise:.0%}, {repeats} repeats"
            yield stated(name, [slowdown(noise, repeats)], "share")


def slowdown(noise: float, repeats: int) -> float:
    """The least that is found in ``FOUND`` of comparisons, for normal noise of logarithms."""
    rng = np.random.default_rng(repeats)
    before, after = noise * rng.standard_normal((2, _COMPARISONS, repeats))
    low, high = 0.0, 2.0
    while high - low > _PRECISION:
        middle = (low + high) / 2
        low, high = (low, middle) if _share(before, after - middle) >= FOUND else (middle, high)
    return 1 - math.exp(-high)


def _share(before: Floats, after: Floats) -> float:
    _, upper = log_interval(before, after, CONFIDENCE)
    return float((upper < 0).mean())
