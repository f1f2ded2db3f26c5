"""The page's section on searches: an answer per search, the figures, and every probe. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import groupby
from statistics import median

from loadtest.report import numbers
from loadtest.report.search_path import path_of_probes
from loadtest.report.templates import Figure, figure_of
from loadtest.results import Summary
from loadtest.searched import LatencyRecord, SearchRecord

BADGES = {"met": "passed", "costly": "open", "missed": "failed", "void": "open"}


@dataclass(frozen=True)
class Searched:
    """All searches of one backend; ``figure`` is ``None`` where no probe can be drawn."""

    backend: str
    searches: tuple[SearchRecord, ...]
    figure: Figure | None

    @property
    def percentiles(self) -> tuple[LatencyRecord, ...]:
        """Names and limits for the head of the table of probes."""
        return next((p.latencies for one in self.searches for p in (*one.closed, *one.probes)), ())

    @property
    def probes(self) -> int:
        return sum(len(one.probes) for one in self.searches)

    @property
    def rates_rps(self) -> list[float]:
        """Of the searches that found one."""
        rates = (one.found_rps for one in self.searches)
        return [rate for rate in rates if rate is not None]

    @property
    def median_rps(self) -> float | None:
        return median(self.rates_rps) if self.rates_rps else None

    @property
    def range_rps(self) -> tuple[float, float] | None:
        return (min(self.rates_rps), max(self.rates_rps)) if self.rates_rps else None


def searched(summary: Summary) -> tuple[Searched, ...]:
    """By backend, in the order of the summary; empty for a sweep."""
    order = [backend.label for backend in summary.backends]
    ordered = sorted(summary.searches, key=lambda one: (order.index(one.backend), one.repeat))
    found = [(label, tuple(own)) for label, own in groupby(ordered, lambda one: one.backend)]
    return tuple(
        Searched(label, own, _figure(place, label, own))
        for place, (label, own) in enumerate(found, 1)
    )


def _figure(place: int, label: str, searches: tuple[SearchRecord, ...]) -> Figure | None:
    values = (found.value_ms for one in searches for p in one.probes for found in p.latencies[:1])
    if all(value is None for value in values):
        return None
    later = (
        " Small points are of the later searches, each on a fresh start, which begin where the "
        "first ended; the band spans the rates that all of them found."
        if len(searches) > 1
        else ""
    )
    return figure_of(
        f"search-{place}",
        f"Path of the probes: {label}",
        "The number at a point is its place in the first search; bars are 99% bounds. A probe "
        f"counts by its upper bound. Open crosses were ended early.{later}",
        f"Scatter plot of the response time percentile against the arrival rate, {label}.",
        path_of_probes(searches),
    )


def latency_bounds(found: LatencyRecord) -> str:
    """Empty where the samples give none at all."""
    if found.low_ms is None:
        return ""
    high = "no bound" if found.high_ms is None else numbers.milliseconds(found.high_ms)
    return f"{numbers.milliseconds(found.low_ms)} to {high}"
