"""What happened to each request, kept as numbers until the window is over.

Recording is appending to flat arrays; histograms (HDR, 1 us to 10 min, 3 significant digits,
http://hdrhistogram.org) are made after the load has stopped, so they cost the generator nothing.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from hdrh.histogram import HdrHistogram

from loadtest.results import OUTCOMES

LOWEST_NS = 1_000
HIGHEST_NS = 600 * 1_000_000_000
DIGITS = 3
WINDOW_NS = 1_000_000_000

Column = npt.NDArray[np.int64]


def new_histogram() -> HdrHistogram:
    return HdrHistogram(LOWEST_NS, HIGHEST_NS, DIGITS)


@dataclass(frozen=True)
class Measured:
    """One measured window, reduced to what is kept.

    Attributes:
        outcomes: count per outcome class; they add up to ``sent``.
        mean_in_flight: request time inside the window over the window's length. By Little's law
            it equals rate times mean latency, without the error at the window's edges.
        response_time: per one-second window, outcome to an encoded histogram; counted from due.
        service_time: the same, counted from sent.
    """

    sent: int
    outcomes: dict[str, int]
    mean_in_flight: float
    response_time: tuple[dict[str, str], ...]
    service_time: tuple[dict[str, str], ...]


class Recorder:
    """Collects requests; all times are ``time.monotonic_ns``."""

    def __init__(self) -> None:
        self._due, self._sent, self._done = array("q"), array("q"), array("q")
        self._outcome = array("b")

    def record(self, due_ns: int, sent_ns: int, done_ns: int, outcome: str) -> None:
        """One finished request. ``outcome`` is one of ``OUTCOMES``."""
        self._due.append(due_ns)
        self._sent.append(sent_ns)
        self._done.append(done_ns)
        self._outcome.append(OUTCOMES.index(outcome))

    def __len__(self) -> int:
        return len(self._due)

    def measure(self, start_ns: int, end_ns: int) -> Measured:
        """Reduce the requests that were due inside [start, end) to counts and histograms."""
        due, sent, done = (np.array(x, np.int64) for x in (self._due, self._sent, self._done))
        outcome = np.array(self._outcome, np.int8)
        inside = (due >= start_ns) & (due < end_ns)
        counts = np.bincount(outcome[inside], minlength=len(OUTCOMES))
        overlap = np.minimum(done, end_ns) - np.maximum(sent, start_ns)
        seconds = (due[inside] - start_ns) // WINDOW_NS
        windows = -(-(end_ns - start_ns) // WINDOW_NS)
        kinds = outcome[inside]
        return Measured(
            sent=int(inside.sum()),
            outcomes={name: int(n) for name, n in zip(OUTCOMES, counts, strict=True)},
            mean_in_flight=float(np.maximum(overlap, 0).sum() / (end_ns - start_ns)),
            response_time=_per_window((done - due)[inside], seconds, kinds, windows),
            service_time=_per_window((done - sent)[inside], seconds, kinds, windows),
        )


def _per_window(
    durations_ns: Column, seconds: Column, kinds: npt.NDArray[np.int8], windows: int
) -> tuple[dict[str, str], ...]:
    found: list[dict[str, HdrHistogram]] = [defaultdict(new_histogram) for _ in range(windows)]
    for duration, second, kind in zip(
        durations_ns.tolist(), seconds.tolist(), kinds.tolist(), strict=True
    ):
        found[second][OUTCOMES[kind]].record_value(min(max(duration, LOWEST_NS), HIGHEST_NS))
    return tuple(
        {name: histogram.encode().decode() for name, histogram in window.items()}
        for window in found
    )


def merge(encoded: list[str]) -> HdrHistogram:
    """One histogram from encoded ones; counts add up exactly."""
    total = new_histogram()
    for text in encoded:
        total.decode_and_add(text)
    return total
