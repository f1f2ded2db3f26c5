"""A plan, drawn: devices against demand, latency against utilisation, what disturbs it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from loadtest.plan.record import FleetPoint, Option, Plan, Range, Verification
from loadtest.plan.wording import labels_of, measured, names_of, percentile_of, ranged, signed
from loadtest.report.figures import (
    COLOURS,
    NEUTRAL,
    SYMBOLS,
    Style,
    error_bars,
    lay_out,
    log_axis,
    objective_line,
    plain,
)
from loadtest.report.numbers import failed, rate, share
from loadtest.rounding import four_digits

STATES = ("as planned", "after a failure", "in a burst")
_BAND_OPACITY = 0.16
_APART = 0.14
_STAR = 15


class Drawn(NamedTuple):
    """An option with its name, colour and symbol, the same in all figures."""

    option: Option
    label: str
    style: Style


def drawn_of(plan: Plan) -> tuple[Drawn, ...]:
    """In the order of the plan."""
    return tuple(
        Drawn(option, label, Style(COLOURS[i % len(COLOURS)], SYMBOLS[i % len(SYMBOLS)]))
        for i, (option, label) in enumerate(zip(plan.options, labels_of(plan), strict=True))
    )


def fleet_figure(plan: Plan) -> go.Figure:
    """Replicas against demand as steps; a star where the demand of the plan lies."""
    figure = go.Figure()
    for one in drawn_of(plan):
        if one.option.fleet:
            figure.add_trace(_steps(one, sorted(one.option.fleet, key=lambda p: p.rate_rps)))
        if one.option.fleet and one.option.replicas is not None:
            told = f"<b>{plain(one.label)}</b>, this plan<br>{rate(plan.asked.rate_rps)} requests/s"
            figure.add_trace(
                go.Scatter(
                    x=[plan.asked.rate_rps],
                    y=[one.option.replicas],
                    mode="markers",
                    marker=_star(one.style),
                    hovertext=[f"{told} need {one.option.replicas}"],
                    hoverinfo="text",
                    legendgroup=plain(one.label),
                    showlegend=False,
                    cliponaxis=False,
                )
            )
    lay_out(figure, height=400)
    most = max((p.replicas for option in plan.options for p in option.fleet), default=1)
    figure.update_xaxes(title="Demand (requests/s)", rangemode="tozero", tickformat=",")
    figure.update_yaxes(title="Devices (replicas)", range=[0, 1.06 * most], tickformat=",d")
    return figure


def _steps(one: Drawn, points: Sequence[FleetPoint]) -> go.Scatter:
    # Up first: between two points the larger number is the one that is enough.
    return go.Scatter(
        x=[point.rate_rps for point in points],
        y=[point.replicas for point in points],
        mode="lines+markers",
        line={"color": one.style.colour, "width": 2, "shape": "vh"},
        marker={"color": one.style.colour, "size": 5, "symbol": one.style.symbol},
        name=plain(one.label),
        legendgroup=plain(one.label),
        hovertext=[
            f"<b>{plain(one.label)}</b><br>{rate(p.rate_rps)} requests/s need {p.replicas}"
            for p in points
        ],
        hoverinfo="text",
    )


def curve_figure(plan: Plan) -> go.Figure:
    """Predicted percentile of one replica with its band; measured points; stars as planned."""
    asked = percentile_of(plan)
    figure = go.Figure()
    heights = [asked.limit_ns / 1e6]
    reach = 0.0
    for one in drawn_of(plan):
        for trace in _curve(one, asked.name):
            figure.add_trace(trace)
        for point in one.option.curve:
            heights += _values(point.response_ms)
            reach = max(reach, point.utilisation)
        if one.option.utilisation is not None and one.option.response_ms is not None:
            figure.add_trace(_planned(one, one.option.utilisation, one.option.response_ms))
            heights += _values(one.option.response_ms)
            reach = max(reach, one.option.utilisation)
    for trace, points in _measured(plan, asked.name):
        figure.add_trace(trace)
        heights += [v for p in points for v in _bounds(p)]
        reach = max(reach, *(point.utilisation for point in points))
    figure.add_trace(objective_line(asked.limit_ns / 1e6, 0, 104 * reach))
    lay_out(figure, height=480)
    figure.update_xaxes(title="Utilisation (% of saturation)", range=[0, 104 * reach])
    figure.update_yaxes(title=f"{asked.name} (ms, log scale)", **log_axis(heights, 1.15))
    return figure


def _curve(one: Drawn, name: str) -> Iterator[go.Scatter]:
    points = sorted(one.option.curve, key=lambda point: point.utilisation)
    if not points:
        return
    loads = [100 * point.utilisation for point in points]
    ranges = [point.response_ms for point in points]
    yield go.Scatter(
        x=loads + loads[::-1],
        y=[r.high for r in ranges] + [r.low for r in ranges[::-1]],
        mode="lines",
        fill="toself",
        fillcolor=_faint(one.style.colour),
        line={"width": 0},
        hoverinfo="skip",
        legendgroup=plain(one.label),
        showlegend=False,
    )
    yield go.Scatter(
        x=loads,
        y=[r.value for r in ranges],
        mode="lines",
        line={"color": one.style.colour, "width": 2},
        name=plain(one.label),
        legendgroup=plain(one.label),
        hovertext=[
            f"<b>{plain(one.label)}</b>, {share(p.utilisation)}, {rate(p.rate_rps)} requests/s"
            f"<br>predicted {name} {ranged(p.response_ms)} ms"
            for p in points
        ],
        hoverinfo="text",
    )


def _planned(one: Drawn, utilisation: float, response_ms: Range) -> go.Scatter:
    return go.Scatter(
        x=[100 * utilisation],
        y=[response_ms.value],
        mode="markers",
        marker=_star(one.style),
        error_y=_range_bars(response_ms),
        hovertext=[
            f"<b>{plain(one.label)}</b>, as planned, with the link<br>{ranged(response_ms)} ms"
        ],
        hoverinfo="text",
        legendgroup=plain(one.label),
        showlegend=False,
        cliponaxis=False,
    )


def _measured(plan: Plan, name: str) -> Iterator[tuple[go.Scatter, Sequence[Verification]]]:
    """A trace of each profile's held-out loads; only those of the objective's percentile."""
    styles: dict[str, Style] = {}
    for one in drawn_of(plan):
        styles.setdefault(one.option.profile, one.style)
    names = names_of((*plan.options, *plan.verifications))
    known = [one for one in plan.verifications if one.percentile == name]
    for profile in dict.fromkeys(one.profile for one in known):
        own = [one for one in known if one.profile == profile]
        style = styles.get(profile, Style(NEUTRAL, "circle"))
        symbols = {
            "within 15%": style.symbol,
            "missed": "x-thin-open",
            "INVALID": f"{style.symbol}-open",
        }
        values = [point.measured_ms for point in own]
        highs = [p.measured_ms if p.measured_high_ms is None else p.measured_high_ms for p in own]
        yield (
            go.Scatter(
                x=[100 * point.utilisation for point in own],
                y=values,
                mode="markers",
                error_y=error_bars(values, [p.measured_low_ms for p in own], highs),
                marker={
                    "color": style.colour,
                    "size": [13 if point.verdict == "missed" else 9 for point in own],
                    "symbol": [symbols[point.verdict] for point in own],
                    "opacity": 1,
                    "line": {"color": style.colour, "width": 2},
                },
                name=f"{plain(names[profile])}, measured",
                hovertext=[_told(point, names[profile]) for point in own],
                hoverinfo="text",
                cliponaxis=False,
            ),
            own,
        )


def _told(one: Verification, name: str) -> str:
    return (
        f"<b>{plain(name)}</b>, {plain(one.load)}, {one.verdict}"
        f"<br>measured {one.percentile} {measured(one)} ms"
        f"<br>predicted {ranged(one.predicted_ms)} ms, {signed(one.error)}"
    )


def stress_figure(plan: Plan) -> go.Figure:
    """The percentile as planned, after a failure and in a burst; none where one cannot keep up."""
    asked = percentile_of(plan)
    figure = go.Figure()
    heights = [asked.limit_ns / 1e6]
    shown = [one for one in drawn_of(plan) if any(states_of(one.option))]
    for place, one in enumerate(shown):
        offset = _APART * (place - (len(shown) - 1) / 2)
        known = [(i, value) for i, value in enumerate(states_of(one.option)) if value is not None]
        ranges = [value for _, value in known]
        heights += [v for value in ranges for v in _values(value)]
        figure.add_trace(
            go.Scatter(
                x=[i + offset for i, _ in known],
                y=[value.value for value in ranges],
                mode="markers",
                error_y=_range_bars(*ranges),
                marker={"color": one.style.colour, "size": 10, "symbol": one.style.symbol},
                name=plain(one.label),
                legendgroup=plain(one.label),
                hovertext=[
                    f"<b>{plain(one.label)}</b>, {STATES[i]}<br>"
                    f"{asked.name} {ranged(value)} ms{_more(one.option, i)}"
                    for i, value in known
                ],
                hoverinfo="text",
                cliponaxis=False,
            )
        )
    figure.add_trace(objective_line(asked.limit_ns / 1e6, -0.5, len(STATES) - 0.5))
    lay_out(figure, height=380)
    figure.update_xaxes(
        tickvals=list(range(len(STATES))),
        ticktext=STATES,
        range=[-0.5, len(STATES) - 0.5],
        zeroline=False,
    )
    figure.update_yaxes(title=f"{asked.name} (ms, log scale)", **log_axis(heights, 1.15))
    return figure


def states_of(option: Option) -> tuple[Range | None, ...]:
    """The percentile in each of ``STATES``; null where it is not known or has no end."""
    return (
        option.response_ms,
        option.failure.response_ms if option.failure else None,
        option.burst.response_ms if option.burst else None,
    )


def _more(option: Option, state: int) -> str:
    if STATES[state] == "after a failure" and option.failure:
        return f"<br>{failed(option.failure.lost_share)} of requests lost until it is known"
    if STATES[state] == "in a burst" and option.burst:
        return f"<br>{option.burst.factor:g} times for {four_digits(option.burst.length_s)} s"
    return ""


def _star(style: Style) -> dict[str, Any]:
    return {
        "symbol": "star",
        "size": _STAR,
        "color": style.colour,
        "line": {"width": 1, "color": "white"},
    }


def _range_bars(*ranges: Range) -> dict[str, Any]:
    return error_bars(
        [one.value for one in ranges], [one.low for one in ranges], [one.high for one in ranges]
    )


def _values(value: Range) -> list[float]:
    """What an axis must hold; a logarithmic one has no 0."""
    return [one for one in (value.value, value.low, value.high) if one > 0]


def _bounds(one: Verification) -> list[float]:
    given = (one.measured_ms, one.measured_low_ms, one.measured_high_ms)
    return [value for value in given if value]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[i : i + 2], 16) for i in (1, 3, 5))
    return f"rgba({red},{green},{blue},{_BAND_OPACITY})"
