"""A playbook, drawn: all effects, the values behind one, and what effects give together. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import exp, log
from statistics import fmean
from typing import Any

import plotly.graph_objects as go

from loadtest.playbook.judging import value_of, values_of
from loadtest.playbook.record import ArmRecord, Combination, Effect, ExperimentRecord, Verdict
from loadtest.playbook.wording import ratio_text, stated, times
from loadtest.report.figures import (
    COLOURS,
    NEUTRAL,
    OBJECTIVE_COLOUR,
    Style,
    error_bars,
    lay_out,
    log_axis,
    plain,
)
from loadtest.rounding import four_digits

_STYLES: dict[Verdict, Style] = {
    "holds": Style(COLOURS[2], "circle"),
    "holds in part": Style(COLOURS[0], "square"),
    "no difference": Style(NEUTRAL, "diamond"),
    "opposite": Style(COLOURS[1], "triangle-left"),
    "breaks accuracy": Style(COLOURS[3], "x"),
}
_STATED = "rgba(122,130,140,0.28)"
_LONGEST = 22
_ROW_PX = 26
_RATIOS = sorted(n * 10.0**decade for n in (1, 2, 5) for decade in range(-3, 4))
_WIDE = 3
"""From such a ratio of its ends an axis has room for ``_RATIOS``."""

_CUT = 3
"""An interval may reach so many times beyond its ratio."""

_LEAST = 1.03
"""The bar of a stated range that is one number is at least so wide."""


def geometric_mean(values: Sequence[float]) -> float:
    """Of positive values."""
    return exp(fmean(map(log, values)))


def forest_figure(records: Sequence[ExperimentRecord]) -> go.Figure:
    """The ratio of each with its interval, in the order of ``records`` from the top."""
    shown = [record for record in records if record.effect and record.effect.ratio]
    names = [_short(record.name) for record in shown]
    figure = go.Figure()
    reach = [value for record in shown for value in _reach(record)]
    most = max([*reach, 2.0]) * 1.1
    figure.add_trace(_stated(shown, most))
    for verdict, style in _STYLES.items():
        own = [(at, one) for at, one in enumerate(shown) if one.verdict == verdict]
        if own:
            figure.add_trace(_effects(verdict, style, own))
    figure.add_vline(x=1, line={"color": OBJECTIVE_COLOUR, "width": 1.5, "dash": "dash"})
    lay_out(figure, height=130 + _ROW_PX * len(shown))
    axis = _ratio_axis([min([*reach, 0.9]), most / 1.02], 1.02)
    figure.update_xaxes(title="Ratio (log scale)", **axis)
    _rows(figure, names)
    return figure


def _reach(record: ExperimentRecord) -> list[float]:
    """What the axis must hold; a stated range without an end stops where the axis does.

    A few noisy values have intervals that would leave all others no room, so those are cut off.
    """
    effect = record.effect
    if effect is None or not effect.ratio:
        return []
    low = max(effect.low or effect.ratio, effect.ratio / _CUT)
    high = min(effect.high or effect.ratio, effect.ratio * _CUT)
    return [value for value in (effect.ratio, low, high, *record.usual) if value]


def _stated(records: Sequence[ExperimentRecord], most: float) -> go.Scatter:
    x: list[float | None] = []
    y: list[int | None] = []
    told: list[str | None] = []
    for at, record in enumerate(records):
        low, high = record.usual[0], record.usual[1] or most
        high = max(high, low * _LEAST)
        x += [low, high, None]
        y += [at, at, None]
        told += [f"people state {stated(record)}"] * 2 + [None]
    return go.Scatter(
        x=x,
        y=y,
        mode="lines",
        line={"color": _STATED, "width": 13},
        name="what people state",
        hovertext=told,
        hoverinfo="text",
    )


def _effects(
    verdict: Verdict, style: Style, own: Sequence[tuple[int, ExperimentRecord]]
) -> go.Scatter:
    effects = [record.effect for _, record in own if record.effect]
    return go.Scatter(
        x=[effect.ratio for effect in effects],
        y=[at for at, _ in own],
        mode="markers",
        error_x=_bars(effects),
        marker={"color": style.colour, "size": 9, "symbol": style.symbol},
        name=verdict,
        hovertext=[
            f"<b>{plain(record.title)}</b>, {verdict}<br>{ratio_text(record.effect)}"
            f"<br>people state {stated(record)}"
            for _, record in own
        ],
        hoverinfo="text",
    )


def _bars(effects: Sequence[Effect]) -> dict[str, Any]:
    """Of no length where there is no interval."""
    middle = [effect.ratio or 0.0 for effect in effects]
    low = [m if e.low is None else e.low for e, m in zip(effects, middle, strict=True)]
    high = [m if e.high is None else e.high for e, m in zip(effects, middle, strict=True)]
    return error_bars(middle, low, high)


def values_figure(record: ExperimentRecord) -> go.Figure | None:
    """The values of each arm as dots, with their geometric mean; ``None`` where there is none.

    A hollow dot is a window that does not count.
    """
    counted = {arm.name: values_of(arm, record.measure) for arm in record.arms}
    void = {arm.name: list(_void(arm, record)) for arm in record.arms}
    every = [value for found in (counted, void) for values in found.values() for value in values]
    if not every:
        return None
    figure = go.Figure()
    for at, arm in enumerate(record.arms):
        colour = COLOURS[at % len(COLOURS)]
        for trace in _dots(at, arm, counted[arm.name], void[arm.name], colour, record.unit):
            figure.add_trace(trace)
    lay_out(figure, height=76 + _ROW_PX * len(record.arms))
    # Short, since a phone has room for no more.
    unit = record.unit if record.measure == "throughput" else f"{record.measure} in {record.unit}"
    figure.update_xaxes(title=f"{unit} (log scale)", **log_axis(every, 1.15))
    figure.update_layout(showlegend=False, margin={"l": 64, "r": 16, "t": 8, "b": 44})
    _rows(figure, [_short(arm.name) for arm in record.arms])
    return figure


def _void(arm: ArmRecord, record: ExperimentRecord) -> Iterator[float]:
    for window in arm.windows:
        value = value_of(window, record.measure)
        if window.reasons and value is not None and value > 0:
            yield value


def _dots(
    at: int, arm: ArmRecord, values: Sequence[float], void: Sequence[float], colour: str, unit: str
) -> Iterator[go.Scatter]:
    name = plain(arm.name)
    if values:
        middle = geometric_mean(values)
        yield _marks(
            [middle],
            at,
            {
                "symbol": "line-ns-open",
                "size": 20,
                "color": colour,
                "line": {"color": colour, "width": 2.5},
            },
            [f"<b>{name}</b><br>geometric mean {four_digits(middle)} {unit}"],
        )
        yield _marks(
            values,
            at,
            {"symbol": "circle", "size": 8, "color": colour, "opacity": 0.65},
            [f"<b>{name}</b><br>{four_digits(value)} {unit}" for value in values],
        )
    if void:
        yield _marks(
            void,
            at,
            {"symbol": "circle-open", "size": 8, "color": colour},
            [f"<b>{name}</b>, does not count<br>{four_digits(v)} {unit}" for v in void],
        )


def _marks(x: Sequence[float], at: int, marker: dict[str, Any], told: Sequence[str]) -> go.Scatter:
    return go.Scatter(
        x=list(x),
        y=[at] * len(x),
        mode="markers",
        marker=marker,
        hovertext=list(told),
        hoverinfo="text",
        cliponaxis=False,
        showlegend=False,
    )


def combination_figure(combination: Combination) -> go.Figure:
    """Part upon part up to the product; below it what was measured, with its interval."""
    figure = go.Figure()
    reached, ends = 1.0, [1.0, combination.predicted]
    names = []
    for at, part in enumerate(combination.parts):
        begins, reached = reached, reached * part.ratio
        ends.append(reached)
        names.append(_short(part.experiment))
        told = (
            f"<b>{plain(part.experiment)}</b>, {times(part.ratio)} "
            f"({times(part.low)} to {times(part.high)})<br>{plain(part.what)}"
        )
        figure.add_trace(_step(at, begins, reached, COLOURS[0], told))
    told = f"<b>predicted</b><br>product of all: {times(combination.predicted)}"
    figure.add_trace(_step(len(names), 1, combination.predicted, NEUTRAL, told))
    names.append("predicted")
    effect = combination.experiment.effect
    if effect and effect.ratio:
        told = f"<b>measured</b><br>{ratio_text(effect)}<br>{plain(combination.combined)}"
        figure.add_trace(_step(len(names), 1, effect.ratio, COLOURS[2], told))
        mark = {"color": COLOURS[2], "size": 9, "symbol": "circle"}
        trace = _marks([effect.ratio], len(names), mark, [told])
        figure.add_trace(trace.update(error_x=_bars([effect])))
        ends += [value for value in (effect.ratio, effect.low, effect.high) if value]
        names.append("measured")
    lay_out(figure, height=90 + _ROW_PX * len(names))
    figure.update_xaxes(title="Ratio (log scale)", **_ratio_axis(ends, 1.15))
    figure.update_layout(showlegend=False, margin={"l": 64, "r": 16, "t": 8, "b": 52})
    figure.add_vline(x=1, line={"color": OBJECTIVE_COLOUR, "width": 1.5, "dash": "dash"})
    _rows(figure, names)
    return figure


def _step(at: int, begins: float, ends: float, colour: str, told: str) -> go.Scatter:
    return go.Scatter(
        x=[begins, ends],
        y=[at, at],
        mode="lines",
        line={"color": colour, "width": 12},
        opacity=0.6,
        showlegend=False,
        hovertext=[told] * 2,
        hoverinfo="text",
    )


def _ratio_axis(values: Sequence[float], headroom: float) -> dict[str, Any]:
    """A log axis whose ticks are 1, 2 and 5 as soon as there is room, on either side of 1."""
    axis = log_axis(values, headroom)
    if max(values) / min(values) < _WIDE:
        return axis
    begins, ends = (10**end for end in axis["range"])
    ticks = [tick for tick in _RATIOS if begins <= tick <= ends]
    return {**axis, "tickvals": ticks, "ticktext": [f"{tick:g}" for tick in ticks]}


def _rows(figure: go.Figure, names: Sequence[str]) -> None:
    """One line of the figure for each name, the first on top."""
    figure.update_yaxes(
        tickvals=list(range(len(names))),
        ticktext=list(names),
        range=[len(names) - 0.4, -0.6],
        showgrid=False,
    )


def _short(name: str) -> str:
    """A label beside an axis; the whole name is in the tables."""
    return plain(name if len(name) <= _LONGEST else f"{name[: _LONGEST - 1]}…")
