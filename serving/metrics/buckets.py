"""Bounds of latency histograms, defined once: evenly spaced on a logarithmic axis."""

from __future__ import annotations

import math

FIRST_NS, LAST_NS = 100_000, 60_000_000_000
"""100 us and 60 s: what is faster falls into the first bucket, what is slower is "above"."""


def per_decade(count: int) -> tuple[int, ...]:
    """Upper bounds in ns from 100 us to 60 s, ``count`` in each decade, four digits each.

    A quantile read from such buckets is off by at most 10**(1/count) - 1 of its value.
    """
    steps = int(count * math.log10(LAST_NS / FIRST_NS))
    exact = (FIRST_NS * 10 ** (step / count) for step in range(steps + 1))
    # Four digits keep the label of a bound short, and the same in every process.
    return (*(int(float(f"{bound:.4g}")) for bound in exact), LAST_NS)


CLIENT_NS = per_decade(25)
PHASE_NS = per_decade(12)
BATCH_ROWS = (1, 2, 4, 8, 16, 32, 64)


def bounds_with(bounds_ns: tuple[int, ...], slo_ns: int | None) -> tuple[int, ...]:
    """``bounds_ns`` with the objective among them, so that what met it is counted exactly."""
    return bounds_ns if slo_ns is None else tuple(sorted({*bounds_ns, slo_ns}))
