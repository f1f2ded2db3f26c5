"""Figures of a sweep, whose levels all backends share. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from loadtest.report.figures import (
    SHOWN,
    Style,
    error_bars,
    lay_out,
    level_name,
    level_text,
    log_axis,
    look,
    plain,
    styled,
)
from loadtest.report.numbers import milliseconds, percentile, rate
from loadtest.results import Point, Summary

MOST_PANELS = 8
"""More levels than that are read in the table."""


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
        for backend, style in styled(summary):
            points = [p for p in backend.points if p.level == level]
            for point in points:
                values = [percentile(point.response_time_ms, field) for field in SHOWN]
                shown += [value for value in values if value is not None]
                title = f"<b>{plain(backend.label)}</b>, {level_text(summary, point)}"
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
    for backend, style in styled(summary):
        points = backend.points
        medians = [p.inferences_per_s for p in points]
        ranges = [p.inferences_per_s_range for p in points]
        figure.add_trace(
            go.Scatter(
                x=[p.level for p in points],
                y=medians,
                mode="lines+markers",
                error_y=error_bars(
                    medians, [low for low, _ in ranges], [high for _, high in ranges]
                ),
                hovertext=[
                    f"<b>{plain(backend.label)}</b>, {level_text(summary, p)}, {p.verdict}<br>"
                    f"{rate(m)} inferences/s, repeats {rate(low)} to {rate(high)}"
                    for p, m, (low, high) in zip(points, medians, ranges, strict=True)
                ],
                hoverinfo="text",
                **look(backend.label, style, points),
            )
        )
    lay_out(figure, height=420)
    texts = [f"{level:g}" for level in levels]
    title = f"Level ({level_name(summary)})"
    figure.update_xaxes(title=title, type="log", tickvals=levels, ticktext=texts)
    figure.update_yaxes(title="Throughput (inferences/s)", rangemode="tozero")
    return figure


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
        **look(label, style, [point] * len(SHOWN)),
    )


def _name_once(figure: go.Figure) -> None:
    """One legend entry per backend, though each panel has a trace of it."""
    seen: set[str] = set()
    for trace in figure.data:
        trace.showlegend = trace.name not in seen
        seen.add(trace.name)
