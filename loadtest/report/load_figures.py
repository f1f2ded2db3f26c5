"""Figures over the load that a backend was given: latency with the objective, and energy. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import NamedTuple

import plotly.graph_objects as go

from loadtest.analysis import percentile_name
from loadtest.objective import parse_objectives
from loadtest.report.figures import (
    Style,
    common_percentile,
    error_bars,
    lay_out,
    level_text,
    log_axis,
    look,
    objective_line,
    plain,
    rows_per_request,
    styled,
)
from loadtest.report.numbers import bounded, bounds, quantile, rate
from loadtest.results import Point, Quantile, Summary
from loadtest.rounding import four_digits
from loadtest.scenarios import is_closed


class Asked(NamedTuple):
    """What latency is drawn, as a field of ``Percentiles``, and its objective, where one is set."""

    field: str
    limit_ms: float | None

    @property
    def name(self) -> str:
        return percentile_name(self.field)


def asked_of(summary: Summary) -> Asked:
    """The first percentile that is bounded, else the highest that all VALID points have."""
    settings = summary.manifest.settings
    if settings.objectives:
        first = parse_objectives(settings.objectives).percentiles[0]
        return Asked(first.name.replace(".", "_"), first.limit_ns / 1e6)
    return Asked(common_percentile(summary), settings.slo_ms)


def load_of(summary: Summary, point: Point) -> float:
    """Inferences per second: offered in an open loop, reached in a closed one."""
    if is_closed(summary.manifest.settings):
        return point.inferences_per_s
    return point.planned_per_s * rows_per_request(summary, point)


def load_title(summary: Summary) -> str:
    closed = is_closed(summary.manifest.settings)
    return f"{'Throughput reached' if closed else 'Load offered'} (inferences/s)"


def latency_against_load(summary: Summary) -> go.Figure:
    """A line per backend, 99% bounds as bars, the objective dashed, found rates as stars."""
    asked = asked_of(summary)
    figure = go.Figure()
    heights: list[float] = [] if asked.limit_ms is None else [asked.limit_ms]
    loads: list[float] = []
    for backend, style in styled(summary):
        known = [(p, q) for p in backend.points if (q := quantile(p.response_time_ms, asked.field))]
        if known:
            known.sort(key=lambda one: _order(summary, one[0]))
            figure.add_trace(_line(summary, backend.label, style, known, asked))
            loads += [load_of(summary, point) for point, _ in known]
            heights += [v for _, q in known for v in (q.value_ms, q.low_ms, q.high_ms) if v]
    if asked.limit_ms is not None and loads:
        figure.add_trace(objective_line(asked.limit_ms, 0, 1.04 * max(loads)))
        for trace in _found(summary, asked.limit_ms):
            figure.add_trace(trace)
    lay_out(figure, height=460)
    figure.update_xaxes(title=load_title(summary), rangemode="tozero")
    figure.update_yaxes(title=f"{asked.name} response time (ms, log scale)")
    figure.update_yaxes(**log_axis(heights, 1.15))
    return figure


def _order(summary: Summary, point: Point) -> float:
    """Levels of a closed loop in their order, though more users may reach less."""
    return point.level if is_closed(summary.manifest.settings) else load_of(summary, point)


def _line(
    summary: Summary,
    label: str,
    style: Style,
    known: Sequence[tuple[Point, Quantile]],
    asked: Asked,
) -> go.Scatter:
    points = [point for point, _ in known]
    values = [q.value_ms for _, q in known]
    searched = bool(summary.searches)
    bars = error_bars(
        values,
        [q.low_ms for _, q in known],
        [q.value_ms if q.high_ms is None else q.high_ms for _, q in known],
    )
    return go.Scatter(
        x=[load_of(summary, point) for point in points],
        y=values,
        # A line through the probes of several searches would only join chance to chance.
        mode="markers" if searched else "lines+markers+text",
        opacity=0.7 if searched else 1.0,
        text=None if searched else [_point_label(point) for point in points],
        textposition="bottom right",
        textfont={"size": 11},
        error_y={**bars, "thickness": 1, "width": 0} if searched else bars,
        hovertext=[
            _told(summary, label, p, f"{asked.name} {bounded(q)} ms, 99% bounds {bounds(q)}")
            for p, q in known
        ],
        hoverinfo="text",
        cliponaxis=False,
        **look(label, style, points),
    )


def _told(summary: Summary, label: str, point: Point, latency: str) -> str:
    first = f"<b>{plain(label)}</b>, {level_text(summary, point)}, {point.verdict}"
    return f"{first}<br>{rate(point.inferences_per_s)} inferences/s answered<br>{latency}"


def _found(summary: Summary, limit_ms: float) -> Iterator[go.Scatter]:
    """The median of the rates that searches found, and their range."""
    for backend, style in styled(summary):
        rows = median(rows_per_request(summary, point) for point in backend.points)
        own = [one for one in summary.searches if one.backend == backend.label]
        rates = [found.found_rps * rows for found in own if found.found_rps is not None]
        if rates:
            middle = median(rates)
            yield go.Scatter(
                x=[middle],
                y=[limit_ms],
                mode="markers+text",
                text=[four_digits(middle)],
                textposition="top center",
                error_x=error_bars([middle], [min(rates)], [max(rates)]),
                marker={
                    "symbol": "star",
                    "size": 15,
                    "color": style.colour,
                    "line": {"width": 1, "color": "white"},
                },
                hovertext=f"<b>{plain(backend.label)}</b> meets the objectives up to "
                f"{four_digits(middle)} inferences/s",
                hoverinfo="text",
                legendgroup=plain(backend.label),
                showlegend=False,
                cliponaxis=False,
            )


def _point_label(point: Point) -> str:
    # The space keeps the text off the marker.
    return f" {point.level:g}" + ("" if point.verdict == "VALID" else " ✕")


def has_energy(summary: Summary) -> bool:
    return any(_joules(p) is not None for b in summary.backends for p in b.points)


def energy_against_load(summary: Summary) -> go.Figure:
    """Joules per inference: solid as measured, dotted above the idle machine."""
    figure = go.Figure()
    for backend, style in styled(summary):
        points = [point for point in backend.points if _joules(point) is not None]
        points.sort(key=lambda point: _order(summary, point))
        if not points:
            continue
        given = {**look(backend.label, style, points), "hoverinfo": "text"}
        loads = [load_of(summary, point) for point in points]
        figure.add_trace(
            go.Scatter(
                x=loads,
                y=[_joules(point) for point in points],
                mode="lines+markers",
                hovertext=[_energy_told(summary, backend.label, point) for point in points],
                **given,
            )
        )
        net = [_net_joules(point) for point in points]
        if any(value is not None for value in net):
            given |= {"line": {"color": style.colour, "width": 1.5, "dash": "dot"}}
            figure.add_trace(
                go.Scatter(
                    x=loads,
                    y=net,
                    mode="lines",
                    hovertext=[_energy_told(summary, backend.label, point) for point in points],
                    showlegend=False,
                    **{name: value for name, value in given.items() if name != "marker"},
                )
            )
    lay_out(figure, height=380)
    figure.update_xaxes(title=load_title(summary), rangemode="tozero")
    figure.update_yaxes(title="Energy per inference (J)", rangemode="tozero")
    return figure


def _joules(point: Point) -> float | None:
    energy = point.resources.energy if point.resources else None
    return energy.joules_per_inference if energy else None


def _net_joules(point: Point) -> float | None:
    energy = point.resources.energy if point.resources else None
    return energy.net_joules_per_inference if energy else None


def _energy_told(summary: Summary, label: str, point: Point) -> str:
    net = _net_joules(point)
    above = "" if net is None else f"<br>{net:.3g} J above the idle machine"
    told = f"<b>{plain(label)}</b>, {level_text(summary, point)}, {point.verdict}"
    return f"{told}<br>{_joules(point):.3g} J per inference{above}"
