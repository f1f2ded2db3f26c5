"""The end of a run in the terminal: one row per point, and why a point does not count."""

from __future__ import annotations

from rich import box
from rich.markup import escape
from rich.table import Table

from loadtest.report.numbers import bounded, bounds, drop, rate
from loadtest.results import BackendSummary, Point, Quantile, Summary
from serving.models.variants.record import VariantRecord

COLUMNS = ("inferences/s", "p50", "p95", "p99 (bounds)")
VARIANT_COLUMNS = ("inferences/s", "drop", "p50", "p99 (bounds)")
"""80 columns hold no more; the page has all."""


def summary_table(summary: Summary) -> Table:
    """Every point with its verdict, best first; backends that were left out come last."""
    settings = summary.manifest.settings
    unit = settings.level_name
    variant = summary.manifest.variant
    table = Table(
        title=escape(
            f"{settings.model}, response times in ms, "
            f"repeats: {settings.repeats} (± half their range)"
        ),
        title_justify="left",
        caption=escape("\n".join(verdict_lines(summary))) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    table.add_column("backend", no_wrap=True, max_width=16)
    table.add_column(unit, justify="right", min_width=4, no_wrap=len(unit) < 9)
    for name in VARIANT_COLUMNS if variant else COLUMNS:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for backend in _best_first(summary):
        for index, point in enumerate(backend.points):
            cells = _cells(point, variant)
            table.add_row(escape(backend.label) if index == 0 else "", *cells)
        if not backend.points:
            told = "left out" if backend.excluded else "not measured"
            table.add_row(
                escape(backend.label), *[""] * (len(table.columns) - 2), f"[red]{told}[/]"
            )
        table.add_section()
    return table


def verdict_lines(summary: Summary) -> list[str]:
    """What a reader must know before quoting a number of this run."""
    lines = []
    variant = summary.manifest.variant
    if variant:
        lines.append(variant_line(variant))
    if not summary.complete:
        lines.append(
            f"Incomplete: {summary.finished_trials} of {summary.planned_trials} trials finished."
        )
    unit = summary.manifest.settings.level_name
    for backend in summary.backends:
        if backend.excluded:
            lines.append(f"{backend.label} was left out: {backend.excluded}")
        lines += [
            f"{backend.label} at {point.level:g} {unit} is INVALID: " + "; ".join(point.reasons)
            for point in backend.points
            if point.verdict == "INVALID"
        ]
    return lines


def variant_line(variant: VariantRecord) -> str:
    """What the drop is, for readers who did not make the variant."""
    return (
        f"Drop: {variant.measure} against {variant.of}, on {variant.inputs} inputs "
        f"({variant.inputs_source}), cosine {variant.cosine:.5f}; {variant.measured_with}."
    )


def _best_first(summary: Summary) -> list[BackendSummary]:
    order = {row.backend: place for place, row in enumerate(summary.ranking.rows)}
    return sorted(summary.backends, key=lambda b: (order.get(b.label, len(order)), not b.points))


def _with_range(point: Point) -> str:
    """Median, and half of the range of repeats in percent of it."""
    middle, (low, high) = point.inferences_per_s, point.inferences_per_s_range
    told = f"{middle:,.0f}" if middle >= 100 else rate(middle)
    return told if point.repeats == 1 or not middle else f"{told} ±{(high - low) / 2 / middle:.0%}"


def _dashed(text: str) -> str:
    """Shorter, since a terminal may have 80 columns."""
    return text.replace(" to ", "-")


def _time(value: Quantile | None) -> str:
    return "too few" if value is None else bounded(value)


def _cells(point: Point, variant: VariantRecord | None) -> list[str]:
    times = point.response_time_ms
    return [
        f"{point.level:g}",
        _with_range(point),
        *((drop(variant), _time(times.p50)) if variant else (_time(times.p50), _time(times.p95))),
        "too few" if times.p99 is None else f"{bounded(times.p99)} ({_dashed(bounds(times.p99))})",
        "[green]VALID[/]" if point.verdict == "VALID" else "[red]INVALID[/]",
    ]
