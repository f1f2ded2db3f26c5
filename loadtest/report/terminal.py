"""The end of a run in the terminal: one row per point, and why a point does not count."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from loadtest.report.numbers import bounded, bounds, rate, rate_range
from loadtest.results import BackendSummary, Point, Summary


def summary_table(summary: Summary) -> Table:
    """Every point with its verdict, best first; backends that were left out come last."""
    settings = summary.manifest.settings
    table = Table(
        title=escape(f"{settings.model}, response times in ms, {settings.repeats} repeats"),
        title_justify="left",
        caption=escape("\n".join(verdict_lines(summary))) or None,
        caption_justify="left",
    )
    table.add_column("backend", no_wrap=True)
    for name in (settings.level_name, "inferences/s", "repeats", "p50", "p95", "p99", "p99 bounds"):
        table.add_column(name, justify="right")
    table.add_column("verdict")
    for backend in _best_first(summary):
        for index, point in enumerate(backend.points):
            table.add_row(escape(backend.label) if index == 0 else "", *_cells(point))
        if not backend.points:
            told = "excluded" if backend.excluded else "not measured"
            table.add_row(escape(backend.label), *[""] * 7, f"[red]{told}[/]")
        table.add_section()
    return table


def verdict_lines(summary: Summary) -> list[str]:
    """What a reader must know before quoting a number of this run."""
    lines = []
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


def _best_first(summary: Summary) -> list[BackendSummary]:
    order = {row.backend: place for place, row in enumerate(summary.ranking.rows)}
    return sorted(summary.backends, key=lambda b: (order.get(b.label, len(order)), not b.points))


def _cells(point: Point) -> list[str]:
    times = point.response_time_ms
    return [
        f"{point.level:g}",
        rate(point.inferences_per_s),
        rate_range(point.inferences_per_s_range),
        *(
            "too few" if value is None else bounded(value)
            for value in (times.p50, times.p95, times.p99)
        ),
        "" if times.p99 is None else bounds(times.p99),
        "[green]VALID[/]" if point.verdict == "VALID" else "[red]INVALID[/]",
    ]
