"""Summary to Plotly figures. Pure; one colour and one symbol per backend, in all of them.

Backgrounds are transparent and the neutral colours are left to the page, which knows whether it is
shown light or dark.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from loadtest.analysis import percentile_name
from loadtest.report.numbers import milliseconds, percentile, rate
from loadtest.results import BackendSummary, Point, Summary

SHOWN = ("p50", "p90", "p95", "p99")
COLOURS = ("#0077bb", "#dd6b20", "#009988", "#c2317f", "#8a6fd1", "#8c7326", "#6b7785")
"""Apart for the colour-blind; each has a contrast of 3 or more on the light and dark page."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "pentagon", "star", "hexagon")
NEUTRAL = "#7a828c"


@dataclass(frozen=True)
class Style:
    colour: str
    symbol: str


def styles(summary: Summary) -> dict[str, Style]:
    """By label; excluded backends keep their place, so a rerun has the same colours."""
    return {
        backend.label: Style(COLOURS[i % len(COLOURS)], SYMBOLS[i % len(SYMBOLS)])
        for i, backend in enumerate(summary.backends)
    }


def level_name(summary: Summary) -> str:
    return summary.manifest.settings.level_name


def level_text(summary: Summary, point: Point) -> str:
    """Such as ``8 users``."""
    return f"{point.level:g} {level_name(summary)}"


def common_percentile(summary: Summary) -> str:
    """The highest percentile up to p99 that every VALID point has samples for."""
    points = [point for backend in summary.backends for point in backend.points]
    points = [point for point in points if point.verdict == "VALID"] or points
    for field in reversed(SHOWN):
        if all(percentile(point.response_time_ms, field) is not None for point in points):
            return field
    return SHOWN[0]


def throughput_against_latency(summary: Summary) -> go.Figure:
    """Inferences per second against response time, a line per backend through its levels."""
    field = common_percentile(summary)
    name = percentile_name(field)
    figure = go.Figure()
    shown: list[float] = []
    for backend, style in _styled(summary):
        points = [p for p in backend.points if percentile(p.response_time_ms, field) is not None]
        heights = [percentile(p.response_time_ms, field) or 0.0 for p in points]
        shown += heights
        figure.add_trace(
            go.Scatter(
                x=[p.inferences_per_s for p in points],
                y=heights,
                mode="lines+markers+text",
                text=[_point_label(p) for p in points],
                textposition="bottom right",
                textfont={"size": 11},
                hovertext=[
                    f"<b>{escape(backend.label)}</b>, {level_text(summary, p)}, {p.verdict}<br>"
                    f"{rate(p.inferences_per_s)} inferences/s<br>{name} {milliseconds(height)} ms"
                    for p, height in zip(points, heights, strict=True)
                ],
                hoverinfo="text",
                cliponaxis=False,
                **_look(backend.label, style, points),
            )
        )
    lay_out(figure, height=460)
    figure.update_xaxes(title="Throughput (inferences/s)")
    figure.update_yaxes(title=f"{name} response time (ms, log scale)", **log_axis(shown, 1.15))
    return figure


def latency_percentiles(summary: Summary) -> go.Figure:
    """Response time percentiles, a panel per level with one common axis."""
    levels = sorted({p.level for b in summary.backends for p in b.points})
    columns = 1 if len(levels) < 2 else 2
    rows = max(1, math.ceil(len(levels) / columns))
    figure = make_subplots(
        rows=rows,
        cols=columns,
        shared_yaxes=True,
        subplot_titles=[f"{level:g} {level_name(summary)}" for level in levels],
        horizontal_spacing=0.04,
        vertical_spacing=0.3 / rows,
    )
    shown: list[float] = []
    for index, level in enumerate(levels):
        for backend, style in _styled(summary):
            points = [p for p in backend.points if p.level == level]
            for point in points:
                values = [percentile(point.response_time_ms, field) for field in SHOWN]
                shown += [value for value in values if value is not None]
                title = f"<b>{escape(backend.label)}</b>, {level_text(summary, point)}"
                figure.add_trace(
                    _percentile_line(title, backend.label, style, point, values),
                    row=index // columns + 1,
                    col=index % columns + 1,
                )
    _name_once(figure)
    lay_out(figure, height=110 + 250 * rows)
    # A category without any value would move to the end of its panel.
    figure.update_xaxes(categoryorder="array", categoryarray=list(SHOWN))
    figure.update_xaxes(range=[-0.35, len(SHOWN) - 0.65])
    figure.update_yaxes(**log_axis(shown, 1.15))
    figure.update_yaxes(title="ms (log scale)", col=1)
    figure.update_annotations(font_size=13)
    return figure


def throughput_against_level(summary: Summary) -> go.Figure:
    """Median inferences per second; bars from the lowest to the highest repeat."""
    figure = go.Figure()
    levels = sorted({p.level for b in summary.backends for p in b.points})
    for backend, style in _styled(summary):
        points = backend.points
        medians = [p.inferences_per_s for p in points]
        ranges = [p.inferences_per_s_range for p in points]
        figure.add_trace(
            go.Scatter(
                x=[p.level for p in points],
                y=medians,
                mode="lines+markers",
                error_y={
                    "type": "data",
                    "symmetric": False,
                    "array": [high - m for (_, high), m in zip(ranges, medians, strict=True)],
                    "arrayminus": [m - low for (low, _), m in zip(ranges, medians, strict=True)],
                    "thickness": 1.5,
                    "width": 5,
                },
                hovertext=[
                    f"<b>{escape(backend.label)}</b>, {level_text(summary, p)}, {p.verdict}<br>"
                    f"{rate(m)} inferences/s, repeats {rate(low)} to {rate(high)}"
                    for p, m, (low, high) in zip(points, medians, ranges, strict=True)
                ],
                hoverinfo="text",
                **_look(backend.label, style, points),
            )
        )
    lay_out(figure, height=420)
    texts = [f"{level:g}" for level in levels]
    title = f"Level ({level_name(summary)})"
    figure.update_xaxes(title=title, type="log", tickvals=levels, ticktext=texts)
    figure.update_yaxes(title="Throughput (inferences/s)", rangemode="tozero")
    return figure


def _styled(summary: Summary) -> list[tuple[BackendSummary, Style]]:
    by_label = styles(summary)
    return [(b, by_label[b.label]) for b in summary.backends if b.points]


def _point_label(point: Point) -> str:
    # The space keeps the text off the marker.
    return f" {point.level:g}" + ("" if point.verdict == "VALID" else " ✕")


def _look(label: str, style: Style, points: Sequence[Point]) -> dict[str, Any]:
    """Name, line and markers of a trace; INVALID points are hollow."""
    return {
        # Plotly reads a little HTML in texts.
        "name": escape(label),
        "legendgroup": escape(label),
        "line": {"color": style.colour, "width": 2},
        "marker": {
            "color": style.colour,
            "size": 8,
            "symbol": [style.symbol + ("" if p.verdict == "VALID" else "-open") for p in points],
            "line": {"color": style.colour, "width": 2},
        },
    }


def _percentile_line(
    title: str, label: str, style: Style, point: Point, values: Sequence[float | None]
) -> go.Scatter:
    return go.Scatter(
        x=list(SHOWN),
        y=list(values),
        mode="lines+markers",
        hovertext=[
            f"{title}, {point.verdict}<br>{field} {milliseconds(value)} ms"
            for field, value in zip(SHOWN, values, strict=True)
        ],
        hoverinfo="text",
        **_look(label, style, [point] * len(SHOWN)),
    )


def _name_once(figure: go.Figure) -> None:
    """One legend entry per backend, though each panel has a trace of it."""
    seen: set[str] = set()
    for trace in figure.data:
        trace.showlegend = trace.name not in seen
        seen.add(trace.name)


def log_axis(values: Sequence[float], headroom: float) -> dict[str, Any]:
    """A log axis around ``values``; Plotly's own labels between decades would be bare digits."""
    if not values:
        return {"type": "log"}
    low, high = min(values) / 1.15, max(values) * headroom
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) < 5 else (1,)
    ticks = [step * 10.0**decade for decade in decades for step in steps]
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.12g}" for tick in ticks],
    }


def lay_out(figure: go.Figure, *, height: int) -> None:
    figure.update_layout(
        template=go.layout.Template(),
        height=height,
        margin={"l": 64, "r": 16, "t": 64, "b": 56},
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        font={"family": "system-ui, sans-serif", "size": 12, "color": NEUTRAL},
        legend={"orientation": "h", "x": 0, "y": 1, "yref": "container", "yanchor": "top"},
        hovermode="closest",
        dragmode=False,
        showlegend=True,
    )
    figure.update_xaxes(showgrid=False, linecolor=NEUTRAL, ticks="outside", tickcolor=NEUTRAL)
    figure.update_yaxes(gridcolor="rgba(122,130,140,0.25)", zeroline=False, automargin=True)
