"""HDR histograms of durations: 1 us to 10 min, 3 significant digits (http://hdrhistogram.org)."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

LOWEST_NS = 1_000
HIGHEST_NS = 600 * 1_000_000_000
DIGITS = 3

_UNIT_BITS = LOWEST_NS.bit_length() - 1
_KEPT_BITS = 11
_FAST = 1
_STEPS = HIGHEST_NS.bit_length() - _UNIT_BITS - _KEPT_BITS + 1
_PLACES = _STEPS << _KEPT_BITS
_FEW = 1 << 14


def new_histogram() -> HdrHistogram:
    return HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)


class Tally:
    """Counts durations in HDR's own buckets, a batch at a time, without a loop over its values.

    It works beside a load engine on the same CPU, so no call may take long: packing one is some
    50 us, turning it into a histogram some milliseconds.
    """

    def __init__(self) -> None:
        self._counts = np.zeros(_PLACES, np.int64)

    @classmethod
    def unpack(cls, packed: bytes) -> Tally:
        """What ``pack`` made."""
        index, counts = np.frombuffer(zlib.decompress(packed), np.int64).reshape(2, -1)
        tally = cls()
        tally._counts[index] = counts
        return tally

    def pack(self) -> bytes:
        """Only what was counted, some kilobytes."""
        index = np.flatnonzero(self._counts)
        return zlib.compress(np.stack([index, self._counts[index]]).tobytes(), _FAST)

    def join(self, other: Tally) -> None:
        self._counts += other._counts

    def add(self, durations_ns: npt.NDArray[np.int64]) -> None:
        """Count every duration; those outside the range count at its ends."""
        np.add.at(self._counts, _places(durations_ns), 1)

    def histogram(self) -> HdrHistogram:
        index = np.flatnonzero(self._counts)
        return _histogram_of(index, self._counts[index])


class Tallies:
    """A tally of each of many streams, of a few kilobytes each: only what was counted is kept.

    Batches are put together before they are counted, so that a small one costs little.
    """

    def __init__(self) -> None:
        self._keys, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        self._pending: list[npt.NDArray[np.int64]] = []
        self._pending_count = 0

    def add(
        self, streams: npt.NDArray[np.integer[Any]], durations_ns: npt.NDArray[np.int64]
    ) -> None:
        """Count each duration for the stream of that number."""
        self._pending.append(streams.astype(np.int64) * _PLACES + _places(durations_ns))
        self._pending_count += len(streams)
        if self._pending_count > max(_FEW, len(self._keys)):
            self._settle()

    def _settle(self) -> None:
        ones = np.ones(self._pending_count, np.int64)
        keys, place = np.unique(np.concatenate([self._keys, *self._pending]), return_inverse=True)
        self._counts = np.bincount(place, np.concatenate([self._counts, ones])).astype(np.int64)
        self._keys = keys
        self._pending, self._pending_count = [], 0

    def histogram(self, stream: int) -> HdrHistogram:
        if self._pending:
            self._settle()
        first, last = np.searchsorted(self._keys, (stream * _PLACES, (stream + 1) * _PLACES))
        return _histogram_of(self._keys[first:last] % _PLACES, self._counts[first:last])


def _places(durations_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The bucket of each duration, below ``_PLACES``."""
    units = np.minimum(np.maximum(durations_ns, LOWEST_NS), HIGHEST_NS) >> _UNIT_BITS
    bits = np.frexp(units.astype(np.float64))[1]
    step = np.maximum(bits - _KEPT_BITS, 0)
    places: npt.NDArray[np.int64] = (step << _KEPT_BITS) + (units >> step)
    return places


def _histogram_of(index: npt.NDArray[np.int64], counts: npt.NDArray[np.int64]) -> HdrHistogram:
    """From buckets and how many durations are in each."""
    total = new_histogram()
    step, units = index >> _KEPT_BITS, index & ((1 << _KEPT_BITS) - 1)
    values = np.maximum(units << (step + _UNIT_BITS), LOWEST_NS)
    for value, count in zip(values.tolist(), counts.tolist(), strict=True):
        total.record_value(value, count)
    return total


def merge(encoded: Iterable[str]) -> HdrHistogram:
    """One histogram from encoded ones; counts add up exactly."""
    total = new_histogram()
    for text in encoded:
        total.decode_and_add(text)
    return total


def encode(histogram: HdrHistogram) -> str:
    """Base64 of the V2 format, zlib-compressed."""
    return str(histogram.encode().decode())


@cache
def _upper_ends() -> npt.NDArray[np.int64]:
    """The highest value of each bucket, in the order of HDR's counts."""
    layout = new_histogram()
    low = np.array([layout.get_value_from_index(i) for i in range(layout.counts_len)], np.int64)
    return low + np.diff(low, append=2 * low[-1] - low[-2]) - 1


def buckets(histogram: HdrHistogram) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Values (the upper end of each bucket that holds any, in ns) and their counts, ascending."""
    counts = np.ctypeslib.as_array(histogram.counts)
    held = np.flatnonzero(counts)
    return _upper_ends()[held], counts[held].astype(np.int64)
