"""A search over settings, drawn: the front, the path, and what each knob may lose. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from loadtest.report.figures import COLOURS, NEUTRAL, lay_out, log_axis, plain
from loadtest.report.numbers import milliseconds, size
from loadtest.rounding import four_digits
from loadtest.slo.search import PRECISION
from loadtest.tune.record import EffectRecord, TriedRecord, TunedBackend

_BLUE, _ORANGE, _GREEN, _PINK = COLOURS[:4]
_SHORT = 46


class _Look(NamedTuple):
    name: str
    colour: str
    symbol: str


_LOOKS = {
    "searched": _Look("searched to the end", _BLUE, "circle"),
    "pruned": _Look("left early, estimate", NEUTRAL, "circle-open"),
    "not reachable": _Look("objectives not reachable", _PINK, "x"),
}
_MATTERED = {"mattered": _ORANGE, "did not matter": _GREEN, "not clear": NEUTRAL}


class CostAxis(NamedTuple):
    """What lies across from goodput."""

    field: str
    title: str


COST_AXES = {
    "p99_ms": CostAxis("p99_ms", "p99 at that rate (ms, log scale)"),
    "memory_bytes": CostAxis("memory_bytes", "memory (MB, log scale)"),
    "joules": CostAxis("joules", "joules per inference (log scale)"),
}


def front_figure(backend: TunedBackend, cost: str) -> go.Figure:
    """Goodput against one cost, of every setting that was searched to its end."""
    known = [one for one in backend.tried if _height(one, cost) is not None]
    front = sorted((one for one in known if one.on_front), key=_goodput)
    figure = go.Figure()
    groups = [
        ("on the front", _BLUE, "circle", [one for one in front if not _is_named(one, backend)]),
        ("beaten by another", NEUTRAL, "circle-open", [o for o in known if not o.on_front]),
        ("default", _GREEN, "square", [one for one in known if not one.changes]),
        ("knee", _ORANGE, "diamond", [one for one in known if one.number == backend.knee]),
        ("chosen", _PINK, "star", [one for one in known if one.number == backend.chosen]),
    ]
    for name, colour, symbol, own in groups:
        if own:
            figure.add_trace(_front_points(name, colour, symbol, own, cost))
    lay_out(figure, height=440)
    rates = [_goodput(one) for one in known]
    heights = [height for one in known if (height := _height(one, cost)) is not None]
    figure.update_xaxes(title="goodput (requests/s, log scale)", **log_axis(rates, 1.1))
    figure.update_yaxes(title=COST_AXES[cost].title, **log_axis(heights, 1.15))
    return figure


def path_figure(backend: TunedBackend) -> go.Figure:
    """Goodput or its estimate in the order of the search, and the best so far."""
    figure = go.Figure()
    known = [one for one in backend.tried if one.outcome and one.outcome.estimate_rps is not None]
    best, steps = 0.0, []
    for one in known:
        best = max(best, _goodput(one))
        steps.append(best)
    figure.add_trace(
        go.Scatter(
            x=[one.number for one in known],
            y=steps,
            mode="lines",
            name="best so far",
            line={"color": _BLUE, "width": 2, "shape": "hv"},
            hoverinfo="skip",
        )
    )
    for verdict, look in _LOOKS.items():
        own = [one for one in known if one.outcome and one.outcome.verdict == verdict]
        if own:
            figure.add_trace(
                go.Scatter(
                    x=[one.number for one in own],
                    y=[one.outcome.estimate_rps if one.outcome else None for one in own],
                    mode="markers",
                    name=look.name,
                    marker=_marker(look.colour, look.symbol, 9),
                    hovertext=[_hover(one) for one in own],
                    hoverinfo="text",
                    cliponaxis=False,
                )
            )
    lay_out(figure, height=380)
    figure.update_xaxes(title="setting, in the order of the search", zeroline=False)
    figure.update_yaxes(title="goodput (requests/s)", rangemode="tozero", tickformat=",")
    return figure


def effects_figure(effects: Sequence[EffectRecord]) -> go.Figure:
    """What the worst value of each knob loses when the rest is right, the largest on top."""
    ordered = sorted(effects, key=lambda effect: effect.loss)
    figure = go.Figure()
    for verdict, colour in _MATTERED.items():
        own = [effect for effect in ordered if effect.verdict == verdict]
        if own:
            figure.add_trace(
                go.Bar(
                    x=[100 * effect.loss for effect in own],
                    y=[effect.knob for effect in own],
                    orientation="h",
                    name=verdict,
                    marker={"color": colour},
                    hovertext=[_told(effect) for effect in own],
                    hoverinfo="text",
                )
            )
    lay_out(figure, height=120 + 30 * len(ordered))
    limit = 100 * (1 - 1 / PRECISION)
    figure.add_vline(x=limit, line={"color": NEUTRAL, "width": 2, "dash": "dash"}, layer="above")
    figure.update_xaxes(title="lost by the worst value that was tried (%)", rangemode="tozero")
    figure.update_yaxes(
        categoryorder="array", categoryarray=[effect.knob for effect in ordered], showgrid=False
    )
    return figure


def _goodput(one: TriedRecord) -> float:
    return (one.outcome.goodput_rps or 0.0) if one.outcome else 0.0


def _height(one: TriedRecord, cost: str) -> float | None:
    if one.outcome is None or not one.outcome.goodput_rps:
        return None
    found: float | None = getattr(one.outcome, cost)
    return found / 1e6 if found is not None and cost == "memory_bytes" else found


def _is_named(one: TriedRecord, backend: TunedBackend) -> bool:
    return not one.changes or one.number in (backend.knee, backend.chosen)


def _front_points(
    name: str, colour: str, symbol: str, own: Sequence[TriedRecord], cost: str
) -> go.Scatter:
    return go.Scatter(
        x=[_goodput(one) for one in own],
        y=[_height(one, cost) for one in own],
        mode="markers",
        name=name,
        marker=_marker(colour, symbol, 14 if symbol == "star" else 10),
        hovertext=[_hover(one) for one in own],
        hoverinfo="text",
        cliponaxis=False,
    )


def _marker(colour: str, symbol: str, width: int) -> dict[str, Any]:
    return {"color": colour, "size": width, "symbol": symbol, "line": {"color": colour, "width": 2}}


def _hover(one: TriedRecord) -> str:
    outcome = one.outcome
    assert outcome is not None
    lines = [f"<b>{one.number}</b>: {plain(_wrapped(one.text))}", outcome.verdict]
    if outcome.goodput_rps:
        lines.append(f"{four_digits(outcome.goodput_rps)} requests/s")
        lines.append(f"p99 {milliseconds(outcome.p99_ms)} ms, memory {size(outcome.memory_bytes)}")
    return "<br>".join(lines)


def _told(effect: EffectRecord) -> str:
    rates = [f"{plain(value)}: {four_digits(rate)}" for value, rate in effect.best_rps.items()]
    return f"<b>{plain(effect.knob)}</b> {effect.verdict}<br>best requests/s by value<br>" + (
        "<br>".join(rates)
    )


def _wrapped(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]}..."
