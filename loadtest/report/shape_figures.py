"""How the response times of each backend's best point lie: by quantile and over time. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from loadtest.analysis import QUANTILES
from loadtest.explained import Heatmap, Spectrum
from loadtest.report.figures import (
    NEUTRAL,
    lay_out,
    level_name,
    log_axis,
    objective_line,
    plain,
    styled,
)
from loadtest.report.load_figures import asked_of
from loadtest.report.numbers import MISSING, milliseconds
from loadtest.results import Summary

_TICKS = {0.5: "50%", 0.9: "90%", 0.99: "99%", 0.999: "99.9%", 0.9999: "99.99%"}
_CELLS = ((0.0, "#2f5f8a"), (0.5, "#3fa7a3"), (1.0, "#f6e58d"))
"""On the dark ground that a heatmap has on either page; what happened once is seen too."""
_GROUND = "#0f1c2a"
_PANEL, _GAP = 190, 46


def percentile_spectrum(summary: Summary) -> go.Figure:
    """Response time against 1/(1 - q), both logarithmic, as far as the samples bound it."""
    figure = go.Figure()
    asked = asked_of(summary)
    heights = [] if asked.limit_ms is None else [asked.limit_ms]
    for backend, style in styled(summary):
        spectrum = backend.spectrum
        if spectrum is None:
            continue
        heights += spectrum.values_ms
        for dash, start, end in _stretches(spectrum):
            figure.add_trace(
                go.Scatter(
                    x=[1 / (1 - q) for q in spectrum.quantiles[start:end]],
                    y=spectrum.values_ms[start:end],
                    mode="lines",
                    name=plain(backend.label),
                    legendgroup=plain(backend.label),
                    showlegend=dash == "solid",
                    line={"color": style.colour, "width": 2.5, "dash": dash},
                    hovertext=[
                        f"<b>{plain(backend.label)}</b>, {100 * q:.6g}%<br>"
                        f"{'at least ' if dash == 'dot' else ''}{milliseconds(value)} ms"
                        for q, value in zip(
                            spectrum.quantiles[start:end],
                            spectrum.values_ms[start:end],
                            strict=True,
                        )
                    ],
                    hoverinfo="text",
                )
            )
    if asked.limit_ms is not None:
        figure.add_trace(objective_line(asked.limit_ms, 1, 2 / (1 - max(_TICKS))))
    lay_out(figure, height=440)
    figure.update_xaxes(
        title="Share of requests within that time",
        type="log",
        range=[0, math.log10(1.3 / (1 - max(_TICKS)))],
        tickvals=[1 / (1 - q) for q in _TICKS],
        ticktext=list(_TICKS.values()),
    )
    figure.update_yaxes(title="Response time (ms, log scale)", **log_axis(heights, 1.15))
    return figure


def _stretches(spectrum: Spectrum) -> Iterator[tuple[str, int, int]]:
    """What is known, and what is only known to be at least a time limit."""
    count = len(spectrum.quantiles)
    limit = spectrum.at_least_from
    known = sum(q < limit for q in spectrum.quantiles) if limit is not None else count
    yield "solid", 0, known
    if known < count:
        yield "dot", max(known - 1, 0), count


class SpectrumRow(NamedTuple):
    """One backend's named percentiles, as text."""

    backend: str
    level: str
    samples: int
    values: tuple[str, ...]


def spectrum_rows(summary: Summary) -> list[SpectrumRow]:
    """The numbers of ``percentile_spectrum``."""
    rows = []
    for backend in summary.backends:
        spectrum = backend.spectrum
        if spectrum is not None:
            known = dict(zip(spectrum.quantiles, spectrum.values_ms, strict=True))
            limit = spectrum.at_least_from
            values = tuple(
                MISSING
                if q not in known
                else f"{'≥ ' if limit is not None and q >= limit else ''}{milliseconds(known[q])}"
                for q in QUANTILES.values()
            )
            level = f"{spectrum.level:g} {level_name(summary)}"
            rows.append(SpectrumRow(backend.label, level, spectrum.samples, values))
    return rows


def latency_over_time(summary: Summary) -> go.Figure:
    """A heatmap per backend: seconds of the window, latency, and how many requests took that."""
    drawn = _heatmaps(summary)
    rows = max(1, len(drawn))
    figure = make_subplots(
        rows=rows,
        cols=1,
        shared_xaxes=True,
        subplot_titles=[
            f"{plain(label)}, {heatmap.level:g} {level_name(summary)}" for label, heatmap in drawn
        ],
        vertical_spacing=_GAP / (rows * _PANEL),
    )
    edges = [edge for _, heatmap in drawn for edge in heatmap.edges_ms]
    for row, (label, heatmap) in enumerate(drawn, 1):
        figure.add_trace(_cells(label, heatmap), row=row, col=1)
    lay_out(figure, height=_PANEL * rows + 130)
    figure.update_layout(
        plot_bgcolor=_GROUND,
        showlegend=False,
        margin={"t": 40, "b": 100},
        coloraxis={
            "colorscale": [list(stop) for stop in _CELLS],
            "cmin": -3,
            "cmax": 0,
            "colorbar": {
                "orientation": "h",
                "thickness": 12,
                "len": 0.9,
                "y": 0,
                "yref": "container",
                "yanchor": "bottom",
                "tickvals": [-3, -2, -1, 0],
                "ticktext": ["0.1%", "1%", "10%", "100%"],
            },
        },
    )
    figure.update_xaxes(title="Seconds since the window began", row=rows, col=1)
    figure.update_xaxes(zeroline=False)
    figure.update_yaxes(title="ms (log)", gridcolor=NEUTRAL, showgrid=False)
    figure.update_yaxes(**log_axis(edges, 1.1))
    figure.update_annotations(font_size=13, x=0, xanchor="left")
    return figure


def _heatmaps(summary: Summary) -> list[tuple[str, Heatmap]]:
    return [(b.label, b.heatmap) for b, _ in styled(summary) if b.heatmap is not None]


def _cells(label: str, heatmap: Heatmap) -> go.Heatmap:
    rows = range(len(heatmap.edges_ms) - 1)
    totals = [max(sum(column), 1) for column in heatmap.counts]
    shares = [
        [
            round(math.log10(column[row] / total), 2) if column[row] else None
            for column, total in zip(heatmap.counts, totals, strict=True)
        ]
        for row in rows
    ]
    return go.Heatmap(
        x=[column * heatmap.column_s for column in range(len(heatmap.counts) + 1)],
        y=list(heatmap.edges_ms),
        z=shares,
        customdata=[[column[row] for column in heatmap.counts] for row in rows],
        coloraxis="coloraxis",
        hovertemplate=f"<b>{plain(label)}</b>, second %{{x:.0f}}<br>about %{{y:.3g}} ms<br>"
        "%{customdata} requests<extra></extra>",
    )


class HeatmapRow(NamedTuple):
    """One column of a heatmap, as text: how many requests, the middle one, the slowest."""

    backend: str
    seconds: str
    requests: int
    middle: str
    slowest: str


def heatmap_rows(summary: Summary) -> list[HeatmapRow]:
    """The numbers of ``latency_over_time``, a row per second and backend."""
    return [
        HeatmapRow(
            label,
            _seconds(place, heatmap.column_s),
            sum(column),
            _bucket(heatmap, column, 0.5),
            _bucket(heatmap, column, 1.0),
        )
        for label, heatmap in _heatmaps(summary)
        for place, column in enumerate(heatmap.counts)
    ]


def _seconds(place: int, width_s: float) -> str:
    return f"{place * width_s:g} to {(place + 1) * width_s:g}"


def _bucket(heatmap: Heatmap, column: tuple[int, ...], quantile: float) -> str:
    """The bucket that holds the quantile of one column."""
    wanted, seen = quantile * sum(column), 0
    for row, count in enumerate(column):
        seen += count
        if seen and seen >= wanted:
            low, high = heatmap.edges_ms[row : row + 2]
            return f"{milliseconds(low)} to {milliseconds(high)}"
    return MISSING
