"""What all figures share: one colour and one symbol per backend, axes, layout. Pure.

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

from loadtest.report.numbers import milliseconds, percentile
from loadtest.results import BackendSummary, Point, Summary

SHOWN = ("p50", "p90", "p95", "p99")
COLOURS = ("#0077bb", "#dd6b20", "#009988", "#c2317f", "#8a6fd1", "#8c7326", "#6b7785")
"""Apart for the colour-blind; each has a contrast of 3 or more on the light and dark page."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "pentagon", "star", "hexagon")
NEUTRAL = "#7a828c"
OBJECTIVE_COLOUR = "#d0435a"

Bars = dict[str, Any]

_WIDE, _MOST_TICKS = 10, 7
"""From such a ratio on a logarithmic axis has ticks enough at 1, 2 and 5."""


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


def plain(text: str) -> str:
    """For texts in figures, in which Plotly reads a little HTML; it knows no entity of a quote."""
    return escape(text, quote=False)


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


def styled(summary: Summary) -> list[tuple[BackendSummary, Style]]:
    by_label = styles(summary)
    return [(b, by_label[b.label]) for b in summary.backends if b.points]


def rows_per_request(summary: Summary, point: Point) -> float:
    """Inferences behind one request."""
    if point.requests_per_s:
        return point.inferences_per_s / point.requests_per_s
    return summary.manifest.settings.batch_size


def error_bars(middle: Sequence[float], low: Sequence[float], high: Sequence[float]) -> Bars:
    """From ``low`` to ``high`` around ``middle``."""
    return {
        "type": "data",
        "symmetric": False,
        "array": [top - m for top, m in zip(high, middle, strict=True)],
        "arrayminus": [m - bottom for bottom, m in zip(low, middle, strict=True)],
        "thickness": 1.5,
        "width": 5,
    }


def objective_line(limit_ms: float, start: float, end: float) -> go.Scatter:
    """Dashed across the figure at the objective."""
    return go.Scatter(
        x=[start, end],
        y=[limit_ms, limit_ms],
        mode="lines",
        name=f"objective, {milliseconds(limit_ms)} ms",
        line={"color": OBJECTIVE_COLOUR, "width": 2, "dash": "dash"},
        hoverinfo="skip",
    )


def look(label: str, style: Style, points: Sequence[Point]) -> dict[str, Any]:
    """Name, line and markers of a trace; INVALID points are hollow."""
    return {
        "name": plain(label),
        "legendgroup": plain(label),
        "line": {"color": style.colour, "width": 2},
        "marker": {
            "color": style.colour,
            "size": 8,
            "symbol": [style.symbol + ("" if p.verdict == "VALID" else "-open") for p in points],
            "line": {"color": style.colour, "width": 2},
        },
    }


def log_axis(values: Sequence[float], headroom: float) -> dict[str, Any]:
    """A log axis around ``values``; Plotly's own labels between decades would be bare digits."""
    if not values:
        return {"type": "log"}
    low, high = min(values) / 1.15, max(values) * headroom
    ticks = _log_ticks(low, high) if high / low >= _WIDE else _even_ticks(low, high)
    return {
        "type": "log",
        "range": [math.log10(low), math.log10(high)],
        "tickvals": ticks,
        "ticktext": [f"{tick:,.12g}" for tick in ticks],
    }


def _log_ticks(low: float, high: float) -> list[float]:
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    steps = (1, 2, 5) if len(decades) < 5 else (1,)
    return [step * 10.0**decade for decade in decades for step in steps]


def _even_ticks(low: float, high: float) -> list[float]:
    step = 10 ** math.floor(math.log10((high - low) / 3))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) < _MOST_TICKS)
    return [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


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
