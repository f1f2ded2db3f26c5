"""The plain table at the end of a run."""

from __future__ import annotations

from rich.markup import escape
from rich.table import Table

from loadtest.results import Point, Summary


def summary_table(summary: Summary) -> Table:
    """One row per point, INVALID ones with their first reason."""
    table = Table(title=f"{summary.manifest.settings.model}, closed loop")
    for heading in ("backend", "users", "inferences/s", "p50 ms", "p95 ms", "p99 ms", "verdict"):
        table.add_column(heading, justify="left" if heading in ("backend", "verdict") else "right")
    for backend in summary.backends:
        if backend.excluded:
            table.add_row(
                escape(backend.label), *["-"] * 5, f"left out: {escape(backend.excluded)}"
            )
        for point in backend.points:
            times = point.response_time_ms
            table.add_row(
                escape(backend.label),
                str(point.concurrency),
                "-" if point.inferences_per_s is None else f"{point.inferences_per_s:.1f}",
                *(_ms(value) for value in (times.p50, times.p95, times.p99)),
                _verdict(point),
            )
        table.add_section()
    return table


def _ms(value: float | None) -> str:
    return "too few" if value is None else f"{value:.2f}"


def _verdict(point: Point) -> str:
    if point.verdict == "VALID":
        return "[green]VALID[/]"
    return f"[red]INVALID[/] {escape('; '.join(point.reasons))}"
