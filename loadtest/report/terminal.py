"""The end of a run in the terminal: one row per point, or per backend that was searched.

Below it stands how each compares with the first, and why something does not count.
"""

from __future__ import annotations

from rich import box
from rich.markup import escape
from rich.table import Table

from loadtest.report.frames import frames_lines
from loadtest.report.numbers import MISSING, bounded, bounds, drop, rate, ratio
from loadtest.report.searching import Searched, searched
from loadtest.report.verdicts import verdicts_of
from loadtest.results import BackendSummary, Point, Quantile, Rank, Summary
from loadtest.rounding import four_digits
from serving.models.variants.record import VariantRecord

COLUMNS = ("inferences/s", "p50", "p95", "p99 (bounds)")
VARIANT_COLUMNS = ("inferences/s", "drop", "p50", "p99 (bounds)")
"""80 columns hold no more; the page has all."""


def summary_table(summary: Summary) -> Table:
    """Every point with its verdict, or every backend's searches; the best first."""
    return _searches(summary) if summary.objectives else _points(summary)


def _points(summary: Summary) -> Table:
    """Backends that were left out come last."""
    settings = summary.manifest.settings
    unit = settings.level_name
    variant = summary.manifest.variant
    table = _table(
        f"{settings.model}, response times in ms, repeats: {settings.repeats} (± half their range)",
        summary,
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


def _searches(summary: Summary) -> Table:
    """One row per backend: the rate it may be given, how sure that is, and what it took."""
    settings = summary.manifest.settings
    several = settings.repeats > 1
    table = _table(
        f"{settings.model}, requests/s within {' and '.join(settings.objectives)}", summary
    )
    table.add_column("backend", no_wrap=True, max_width=18)
    table.add_column("requests/s", justify="right", no_wrap=True)
    table.add_column("range" if several else "missed at", justify="right", no_wrap=True)
    table.add_column("of the first (95%)", justify="right", no_wrap=True)
    table.add_column("probes", justify="right", no_wrap=True)
    table.add_column("answer")
    found = {one.backend: one for one in searched(summary)}
    ranks = {row.backend: row for row in summary.ranking.rows}
    for backend in _best_first(summary):
        own = found.get(backend.label)
        if own is None:
            told = "left out" if backend.excluded else "not searched"
            table.add_row(escape(backend.label), "", "", "", "", f"[red]{told}[/]")
        else:
            table.add_row(
                escape(backend.label), *_found(own, ranks.get(backend.label), several=several)
            )
    return table


def _found(own: Searched, row: Rank | None, *, several: bool) -> list[str]:
    missed = next((one.answer.missed_rps for one in own.searches), None)
    low_high = own.range_rps
    spread = MISSING if low_high is None else "-".join(map(four_digits, low_high))
    against = row.against_first if row else None
    kinds = [one.answer.kind for one in own.searches]
    counted = [f"{kinds.count(kind)} {kind}" if several else kind for kind in dict.fromkeys(kinds)]
    return [
        four_digits(own.median_rps),
        spread if several else four_digits(missed),
        ratio(against),
        str(own.probes),
        ", ".join(counted),
    ]


def _table(title: str, summary: Summary) -> Table:
    return Table(
        title=escape(title),
        title_justify="left",
        caption=escape("\n".join(verdict_lines(summary))) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )


def verdict_lines(summary: Summary) -> list[str]:
    """What a reader must know before quoting a number of this run."""
    lines = []
    variant = summary.manifest.variant
    if variant:
        lines.append(variant_line(variant))
    if not summary.complete:
        planned = "" if summary.objectives else f" of {summary.planned_trials}"
        lines.append(f"Incomplete: {summary.finished_trials}{planned} trials finished.")
    if not summary.objectives:
        lines += _against_first(summary)
    lines += frames_lines(summary)
    lines += [f"{one.subject}: {one.label}: {one.why}" for one in verdicts_of(summary)]
    return lines


def _against_first(summary: Summary) -> list[str]:
    """``triton serves 0.82 (0.79 to 0.85) times what onnxruntime does: slower``."""
    first = next((row.backend for row in summary.ranking.rows), "")
    return [
        f"{row.backend} serves {ratio(row.against_first)} times what {first} does: "
        f"{row.against_first.verdict}"
        for row in summary.ranking.rows
        if row.against_first
    ]


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
