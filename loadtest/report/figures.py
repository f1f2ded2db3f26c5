"""Figures of a summary. Each backend keeps one colour; an INVALID point is hollow."""

from __future__ import annotations

from collections.abc import Sequence

import plotly.graph_objects as go

from loadtest.results import BackendSummary, Percentiles, Point, Summary

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#7f7f7f")
"""Okabe and Ito's palette, which colour-blind readers can tell apart."""

SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star", "hexagon")
QUANTILES = (("p50", "p50"), ("p90", "p90"), ("p95", "p95"), ("p99", "p99"), ("p99_9", "p99.9"))


def figures(summary: Summary) -> dict[str, go.Figure]:
    """Title to figure, in the order of the page."""
    shown = [backend for backend in summary.backends if backend.points]
    return {
        "Throughput against latency": latency_against_throughput(shown),
        "Throughput against concurrency": throughput_against_concurrency(shown),
        "Latency percentiles": percentiles(shown),
    }


def common_quantile(backends: Sequence[BackendSummary]) -> tuple[str, str]:
    """The highest quantile that every measured point has enough samples for, as field and word."""
    points = [p for b in backends for p in b.points if p.inferences_per_s is not None]
    for field, word in (("p99", "p99"), ("p95", "p95"), ("p90", "p90")):
        if all(getattr(point.response_time_ms, field) is not None for point in points):
            return field, word
    return "p50", "p50"


def latency_against_throughput(backends: Sequence[BackendSummary]) -> go.Figure:
    """Inferences per second (right is better) against response time (low is better)."""
    field, word = common_quantile(backends)
    figure = _figure("inferences per second", f"{word} response time (ms)")
    for number, backend in enumerate(backends):
        points = [
            point
            for point in backend.points
            if point.inferences_per_s is not None
            and getattr(point.response_time_ms, field) is not None
        ]
        figure.add_scatter(
            x=[point.inferences_per_s for point in points],
            y=[getattr(point.response_time_ms, field) for point in points],
            text=[str(point.concurrency) for point in points],
            textposition="top center",
            mode="lines+markers+text",
            hovertemplate="concurrency %{text}: %{x:.1f}/s, %{y:.2f} ms",
            **_style(number, backend, points),
        )
    figure.update_yaxes(type="log", dtick="D2")
    return figure


def throughput_against_concurrency(backends: Sequence[BackendSummary]) -> go.Figure:
    """Median over repeats, with their lowest and highest as error bars."""
    figure = _figure("concurrency", "inferences per second")
    for number, backend in enumerate(backends):
        points = [point for point in backend.points if point.inferences_per_s_range is not None]
        rates = [point.inferences_per_s or 0.0 for point in points]
        ranges = [point.inferences_per_s_range or (0.0, 0.0) for point in points]
        figure.add_scatter(
            x=[str(point.concurrency) for point in points],
            y=rates,
            error_y={
                "type": "data",
                "symmetric": False,
                "array": [high - rate for rate, (_, high) in zip(rates, ranges, strict=True)],
                "arrayminus": [rate - low for rate, (low, _) in zip(rates, ranges, strict=True)],
            },
            mode="lines+markers",
            hovertemplate="concurrency %{x}: %{y:.1f}/s",
            **_style(number, backend, points),
        )
    figure.update_xaxes(type="category")
    figure.update_yaxes(rangemode="tozero")
    return figure


def percentiles(backends: Sequence[BackendSummary]) -> go.Figure:
    """Percentiles of the response time at each concurrency, on a logarithmic axis."""
    figure = _figure("percentile, by concurrency", "response time (ms)")
    for number, backend in enumerate(backends):
        cells = [
            (str(point.concurrency), word, value)
            for point in backend.points
            for field, word in QUANTILES
            if (value := _value(point.response_time_ms, field)) is not None
        ]
        figure.add_scatter(
            x=[[f"{concurrency} users" for concurrency, _, _ in cells], [w for _, w, _ in cells]],
            y=[value for _, _, value in cells],
            mode="markers",
            hovertemplate="%{x}: %{y:.2f} ms",
            **_style(number, backend, ()),
        )
    figure.update_yaxes(type="log", dtick="D2")
    return figure


def _value(percentiles_ms: Percentiles, field: str) -> float | None:
    value: float | None = getattr(percentiles_ms, field)
    return value


def _figure(x: str, y: str) -> go.Figure:
    figure = go.Figure()
    figure.update_layout(
        paper_bgcolor="rgba(0,0,0,0)",
        plot_bgcolor="rgba(0,0,0,0)",
        margin={"l": 64, "r": 16, "t": 16, "b": 56},
        legend={"orientation": "h", "y": 1.12},
        font={"family": "system-ui, sans-serif", "size": 13},
        height=420,
    )
    figure.update_xaxes(title=x, gridcolor="rgba(128,128,128,.25)", zeroline=False)
    figure.update_yaxes(title=y, gridcolor="rgba(128,128,128,.25)", zeroline=False)
    return figure


def _style(number: int, backend: BackendSummary, points: Sequence[Point]) -> dict[str, object]:
    colour = COLOURS[number % len(COLOURS)]
    symbol = SYMBOLS[number % len(SYMBOLS)]
    symbols = [symbol if p.verdict == "VALID" else f"{symbol}-open" for p in points] or symbol
    return {
        # Plotly reads a little HTML in names; a label may come from the user.
        "name": backend.label.replace("<", "&lt;"),
        "line": {"color": colour, "width": 2},
        "marker": {"color": colour, "size": 9, "symbol": symbols},
    }
