"""Which figures a report has, with what is said beside them."""

from __future__ import annotations

from collections.abc import Iterator

from loadtest.report import level_figures, load_figures, shape_figures
from loadtest.report.figures import level_name
from loadtest.report.templates import Figure, figure_of
from loadtest.results import Summary
from loadtest.scenarios import is_closed


def figures_of(summary: Summary) -> tuple[Figure, ...]:
    """None where there is no point; levels are drawn where all backends share them."""
    if not any(backend.points for backend in summary.backends):
        return ()
    levels = {point.level for backend in summary.backends for point in backend.points}
    shared = not summary.searches and len(levels) <= level_figures.MOST_PANELS
    return (
        _load(summary),
        *_shapes(summary),
        *(_levels(summary) if shared else ()),
        *(_energy(summary) if load_figures.has_energy(summary) else ()),
    )


def _load(summary: Summary) -> Figure:
    asked = load_figures.asked_of(summary)
    settings = summary.manifest.settings
    told = ["Low and far right is better. Bars are 99% bounds; hollow points are INVALID."]
    if summary.searches:
        told.append("A star is the median of the rates that searches found, its bar their range.")
    else:
        told.append(f"The number at a point is its level ({level_name(summary)}).")
    if asked.limit_ms is None:
        told.append("No objective was set (--slo).")
    if not settings.objectives and asked.field != "p99":
        told.append(
            f"{asked.name} is shown because not every VALID point has enough samples for p99."
        )
    load = "reached" if is_closed(settings) else "offered"
    return figure_of(
        "latency-load",
        "Latency against load",
        " ".join(told),
        f"Line plot of {asked.name} response time against the load that was {load}, per backend, "
        "with the objective as a dashed line.",
        load_figures.latency_against_load(summary),
    )


def _shapes(summary: Summary) -> Iterator[Figure]:
    if any(backend.spectrum for backend in summary.backends):
        yield figure_of(
            "spectrum",
            "Percentile spectrum",
            "Each backend at its best VALID point, from the merged histograms. A line ends where "
            "its samples bound no higher percentile at 99%; dotted parts reached a time limit.",
            "Line plot of response time against the share of requests, up to 99.99%, per backend.",
            shape_figures.percentile_spectrum(summary),
        )
    if any(backend.heatmap for backend in summary.backends):
        yield figure_of(
            "heatmap",
            "Latency over time",
            "The window with the median rate at each backend's best VALID point. A column is a "
            "second by when requests were due; the scale is the share of that second's requests.",
            "Heatmaps of how many requests of each second took how long, one per backend.",
            shape_figures.latency_over_time(summary),
        )


def _levels(summary: Summary) -> Iterator[Figure]:
    yield figure_of(
        "latency-percentiles",
        "Response time percentiles",
        "One panel per level, one common scale. A percentile without enough samples "
        "is left out, not guessed.",
        "Line plots of the p50, p90, p95 and p99 response time per backend and level.",
        level_figures.latency_percentiles(summary),
    )
    yield figure_of(
        "throughput-level",
        "Throughput against level",
        "Points are the median over repeats; bars reach from the lowest to the highest.",
        "Line plot of inferences per second against level, with the range of repeats.",
        level_figures.throughput_against_level(summary),
    )


def _energy(summary: Summary) -> Iterator[Figure]:
    yield figure_of(
        "energy",
        "Energy against load",
        "Of one window per point. Solid lines are all that the rails gave; dotted ones are what "
        "lies above the idle machine.",
        "Line plot of joules per inference against load, per backend.",
        load_figures.energy_against_load(summary),
    )
