"""How the response times of a backend's best point lie: by quantile, and second by second. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from loadtest.analysis import QUANTILES, HistogramReader, middle_trial, samples_of
from loadtest.confidence import Samples
from loadtest.explained import Heatmap, Spectrum
from loadtest.histogram import buckets, merge
from loadtest.results import IN_PERCENTILES, Point, Trial, Window
from loadtest.searched import SearchRecord

PER_DECADE = 20
"""Quantiles between 1 - 10**-n and the next decade."""
ROWS, ROW_RATIO = 40, 1.02
"""Most rows of a heatmap, and the least ratio of a row's ends."""
COLUMNS = 120
"""Most columns; of a longer window each has several seconds."""

_NS_PER_MS = 1e6


def best_trials(
    trials: Sequence[Trial], points: Sequence[Point], searches: Sequence[SearchRecord]
) -> list[Trial]:
    """VALID trials of one backend at its best VALID point.

    Of searches those at the rate that the one with the median answer found, the lower of two.
    """
    if searches:
        found = [one.best for one in searches if one.best is not None]
        levels = sorted(probe.rate_rps for probe in found)
    else:
        valid = [point for point in points if point.verdict == "VALID"]
        best = max(valid, key=lambda point: point.inferences_per_s, default=None)
        levels = [best.level] if best else []
    if not levels:
        return []
    level = levels[(len(levels) - 1) // 2]
    scenarios = {point.scenario for point in points}
    at = (one for one in trials if one.level == level and one.scenario in scenarios)
    return [trial for trial in at if trial.verdict == "VALID"]


def shapes_of(
    trials: Sequence[Trial], read: HistogramReader
) -> tuple[Spectrum | None, Heatmap | None]:
    """``trials`` are of one point; both are ``None`` where there is none."""
    if not trials:
        return None, None
    windows = [window for trial in trials for window in read(trial.id).response_time]
    samples = samples_of(windows, sum(trial.outcomes["not_sent"] for trial in trials))
    middle = middle_trial(trials)
    return (
        spectrum_of(samples, trials[0].level),
        heatmap_of(read(middle.id).response_time, middle),
    )


def spectrum_of(samples: Samples, level: float) -> Spectrum | None:
    """From the merged histograms, as far as the samples bound a quantile."""
    found = [(quantile, samples.percentile(quantile)) for quantile in _quantiles()]
    known = [(quantile, one) for quantile, one in found if one is not None]
    if not known:
        return None
    return Spectrum(
        level=level,
        samples=samples.count,
        quantiles=tuple(quantile for quantile, _ in known),
        values_ms=tuple(one.value / _NS_PER_MS for _, one in known),
        at_least_from=next((quantile for quantile, one in known if one.at_least), None),
    )


def _quantiles() -> list[float]:
    """Evenly on the axis of 1/(1 - q), and those that have a name."""
    decades = math.log10(1 / (1 - max(QUANTILES.values())))
    steps = range(1, round(decades * PER_DECADE) + 1)
    even = [1 - 10 ** (-step / PER_DECADE) for step in steps]
    named = list(QUANTILES.values())
    apart = [q for q in even if all(abs((1 - q) / (1 - one) - 1) > 1e-6 for one in named)]
    return sorted([*apart, *named])


def heatmap_of(windows: Sequence[Window], trial: Trial) -> Heatmap | None:
    """Requests of one window, by the second in which they were due and how long they took.

    What was given up counts at its time limit.
    """
    per_column = max(1, math.ceil(len(windows) / COLUMNS))
    held = [
        buckets(merge(w[name] for w in windows[at : at + per_column] for name in _named(w)))
        for at in range(0, len(windows), per_column)
    ]
    values = [one for one, _ in held if len(one)]
    if not values:
        return None
    edges = _edges(min(one[0] for one in values), max(one[-1] for one in values))
    counts = [np.histogram(one, edges, weights=many)[0] for one, many in held]
    return Heatmap(
        trial=trial.id,
        level=trial.level,
        column_s=float(per_column),
        edges_ms=tuple(round(float(edge) / _NS_PER_MS, 6) for edge in edges),
        counts=tuple(tuple(int(n) for n in column) for column in counts),
    )


def _named(window: Window) -> list[str]:
    return [name for name in IN_PERCENTILES if name in window]


def _edges(lowest_ns: float, highest_ns: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Ends of the rows at equal ratios, a little beyond both values."""
    low, high = lowest_ns / math.sqrt(ROW_RATIO), highest_ns * math.sqrt(ROW_RATIO)
    rows = min(ROWS, max(1, math.floor(math.log(high / low) / math.log(ROW_RATIO))))
    return np.geomspace(low, high, rows + 1)
