"""Arrival times of open-loop load: seeded, absolute, pure.

Every function yields whole arrays of nanoseconds since the schedule's start, ascending, so that a
long schedule costs no memory. The same generator state gives the same times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

CHUNK = 4096
_NS = 1e9


def constant(rate_rps: float) -> Iterator[Times]:
    """Evenly spaced, without an end. Computed from the count, so that errors do not add up."""
    first = 0
    while True:
        yield np.rint(np.arange(first, first + CHUNK) * (_NS / rate_rps)).astype(np.int64)
        first += CHUNK


def poisson(rate_rps: float, rng: np.random.Generator) -> Iterator[Times]:
    """Independent exponential gaps, without an end: many users who do not know each other."""
    yield from _from_gaps(lambda: rng.exponential(1 / rate_rps, CHUNK))


def gamma(rate_rps: float, burstiness: float, rng: np.random.Generator) -> Iterator[Times]:
    """Gaps of a gamma distribution with mean 1/rate and coefficient of variation sqrt(burstiness).

    ``burstiness`` 1 is Poisson, above 1 comes in bursts, below 1 is more even.
    """
    shape = 1 / burstiness
    yield from _from_gaps(lambda: rng.gamma(shape, 1 / (rate_rps * shape), CHUNK))


def _from_gaps(draw: Callable[[], npt.NDArray[np.float64]]) -> Iterator[Times]:
    reached = 0.0
    while True:
        times = reached + np.cumsum(draw())
        reached = float(times[-1])
        yield np.rint(times * _NS).astype(np.int64)


def varying(
    profile: Sequence[tuple[float, float]], rng: np.random.Generator | None
) -> Iterator[Times]:
    """Arrivals whose rate follows straight lines between ``(seconds, rate_rps)`` points; ends.

    A unit-rate process is carried through the inverse of the cumulative rate (Cinlar, *Introduction
    to Stochastic Processes*, 1975, 4.7): Poisson with ``rng``, evenly spaced without.
    """
    at_s, rate = np.array(profile, float).T
    cumulative = np.concatenate([[0.0], np.cumsum(np.diff(at_s) * (rate[1:] + rate[:-1]) / 2)])
    unit = poisson(1.0, rng) if rng is not None else constant(1.0)
    for chunk in unit:
        wanted = chunk / _NS
        inside = wanted[wanted < cumulative[-1]]
        yield np.rint(_inverse(inside, at_s, rate, cumulative) * _NS).astype(np.int64)
        if len(inside) < len(wanted):
            return


def _inverse(
    wanted: npt.NDArray[np.float64],
    at_s: npt.NDArray[np.float64],
    rate: npt.NDArray[np.float64],
    cumulative: npt.NDArray[np.float64],
) -> npt.NDArray[np.float64]:
    """Seconds at which the cumulative rate reaches ``wanted``; a quadratic within each piece."""
    piece = np.searchsorted(cumulative, wanted, side="right") - 1
    length = np.diff(at_s)
    # A jump is a piece of no length; no arrival falls into it.
    slopes = np.divide(np.diff(rate), length, out=np.zeros_like(length), where=length > 0)
    start, slope = rate[piece], slopes[piece]
    left = wanted - cumulative[piece]
    root = np.sqrt(np.maximum(start * start + 2 * slope * left, 0.0))
    # This form of the solution stays exact as the slope goes to zero.
    return at_s[piece] + 2 * left / np.maximum(start + root, 1e-300)


def recorded(offsets_s: Sequence[float], speed: float) -> Iterator[Times]:
    """The times of a trace from its first, ``speed`` times as fast; ends."""
    times = (np.array(offsets_s, float) - offsets_s[0]) / speed
    for first in range(0, len(times), CHUNK):
        yield np.rint(times[first : first + CHUNK] * _NS).astype(np.int64)


def share(chunks: Iterable[Times], index: int, count: int) -> Iterator[Times]:
    """Every ``count``-th arrival from ``index`` on: what one of several generators sends."""
    seen = 0
    for chunk in chunks:
        yield chunk[(index - seen) % count :: count]
        seen += len(chunk)
