"""The page's section on where the time went: a stacked bar per backend, and all numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import plotly.graph_objects as go

from loadtest.breakdown import FRONT, PARTS
from loadtest.explained import Breakdown
from loadtest.report.figures import lay_out, level_text, plain
from loadtest.report.numbers import MISSING, milliseconds
from loadtest.report.templates import Figure, figure_of
from loadtest.results import Point, Summary

COLOURS = ("#b03a8c", "#7a7f87", "#8a63d2", "#d9731a", "#459c99", "#3a5fd0", "#7d9b1f", "#9a6a4f")
"""Of the parts; apart for the colour-blind, with a contrast of 3 or more on either page."""
PATTERNS = ("/", "", "|", "x", "", "", ".", "\\")
"""So that parts that touch are told apart without any colour."""

_HATCHING = {"fillmode": "overlay", "fgcolor": "#ffffff", "fgopacity": 0.5, "size": 6}

Bar = tuple[str, Point, Breakdown]
"""A backend, one of its points, and where the time of that point went."""


@dataclass(frozen=True)
class BreakdownRow:
    """One point as text; ``cells`` are the parts in order, in milliseconds."""

    backend: str
    level: float
    mean: str
    cells: tuple[str, ...]
    rows_per_batch: str
    surplus: str


@dataclass(frozen=True)
class BreakdownSection:
    """Attributes: ``notes`` are by what they say, with the backends that they are about.

    ``parts`` are the columns: a front half has one only where a model has a front half.
    """

    figure: Figure
    parts: tuple[str, ...]
    rows: tuple[BreakdownRow, ...]
    notes: dict[str, str]
    encoding: str

    @property
    def groups(self) -> list[tuple[str, list[BreakdownRow]]]:
        """Rows by backend, in the order of the summary."""
        by_backend = groupby(self.rows, lambda row: row.backend)
        return [(label, list(rows)) for label, rows in by_backend]


def section_of(summary: Summary) -> BreakdownSection | None:
    """``None`` where no VALID point was divided, as in results of older versions."""
    found = {(one.backend, one.found_rps) for one in summary.searches}
    divided = [
        (backend.label, point, point.breakdown)
        for backend in summary.backends
        for point in backend.points
        # Of a search the rates that were answers, and not every probe.
        if point.breakdown is not None
        and (not summary.searches or (backend.label, point.level) in found)
    ]
    if not divided:
        return None
    at = (
        "at the highest rate that met the objectives in one of its searches"
        if summary.searches
        else "at its VALID point with the most inferences per second"
    )
    known = {part for _, _, breakdown in divided for part, _ in breakdown.parts}
    parts = tuple(part for part in PARTS if part != FRONT or part in known)
    notes: dict[str, list[str]] = {}
    for label, _, breakdown in divided:
        for note in breakdown.notes:
            if label not in notes.setdefault(note, []):
                notes[note].append(label)
    return BreakdownSection(
        figure=figure_of(
            "breakdown-figure",
            "Mean response time, in parts",
            f"Each backend {at}. Means are shown, since the parts of a mean add up; those of a "
            "percentile do not.",
            "Stacked bars of the mean response time per backend.",
            stacked(summary, _best(divided)),
        ),
        parts=parts,
        rows=tuple(_row(*bar, parts) for bar in divided),
        notes={note: ", ".join(labels) for note, labels in notes.items()},
        encoding=_encoding([breakdown for _, _, breakdown in divided]),
    )


def stacked(summary: Summary, bars: Sequence[Bar]) -> go.Figure:
    """One horizontal bar per backend, its parts from left to right on a request's way."""
    figure = go.Figure()
    names = [
        f"{plain(label)}<br>{level_text(summary, point)}: "
        f"{milliseconds(breakdown.mean_response_ms)} ms"
        for label, point, breakdown in bars
    ]
    for part, colour, pattern in zip(PARTS, COLOURS, PATTERNS, strict=True):
        widths = [dict(breakdown.parts).get(part) for _, _, breakdown in bars]
        if any(width is not None for width in widths):
            figure.add_trace(
                go.Bar(
                    x=widths,
                    y=names,
                    orientation="h",
                    name=part,
                    marker={
                        "color": colour,
                        "pattern": {"shape": pattern, **_HATCHING},
                    },
                    hovertext=[
                        f"<b>{plain(label)}</b><br>{part}: {milliseconds(width)} ms"
                        for (label, _, _), width in zip(bars, widths, strict=True)
                    ],
                    hoverinfo="text",
                )
            )
    lay_out(figure, height=140 + 56 * len(bars))
    figure.update_layout(barmode="stack", bargap=0.35, legend={"traceorder": "normal"})
    figure.update_xaxes(title="Mean response time of right answers (ms)", rangemode="tozero")
    figure.update_yaxes(autorange="reversed", showgrid=False, linecolor="rgba(0,0,0,0)")
    return figure


def _best(divided: Sequence[Bar]) -> list[Bar]:
    """Each backend at the divided point with the most inferences per second."""
    return [
        max(own, key=lambda bar: bar[1].inferences_per_s)
        for _, own in groupby(divided, lambda bar: bar[0])
    ]


def _row(label: str, point: Point, breakdown: Breakdown, parts: tuple[str, ...]) -> BreakdownRow:
    known = dict(breakdown.parts)
    rows_per_batch = breakdown.rows_per_batch
    return BreakdownRow(
        backend=label,
        level=point.level,
        mean=milliseconds(breakdown.mean_response_ms),
        cells=tuple(milliseconds(known.get(part)) for part in parts),
        rows_per_batch=MISSING if rows_per_batch is None else f"{rows_per_batch:.1f}",
        surplus="" if breakdown.adds_up else f"{breakdown.gap_share:.0%}",
    )


def _encoding(breakdowns: Sequence[Breakdown]) -> str:
    """How long a request was encoded beforehand; empty where that is not known."""
    found = sorted(set(_known(breakdowns)))
    if not found:
        return ""
    low, high = f"{found[0] / 1e3:,.1f}", f"{found[-1] / 1e3:,.1f}"
    return low if low == high else f"{low} to {high}"


def _known(breakdowns: Sequence[Breakdown]) -> Iterator[float]:
    return (b.encode_ns for b in breakdowns if b.encode_ns is not None)
