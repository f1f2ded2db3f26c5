"""The path of a search: what each probe measured at its rate, in the order they ran. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import plotly.graph_objects as go

from loadtest.report.figures import NEUTRAL, lay_out, log_axis
from loadtest.report.numbers import milliseconds
from loadtest.slo.record import LatencyRecord, ProbeRecord, SearchRecord

_WIDE = 8
"""From such a ratio on a logarithmic axis has ticks enough at 1, 2 and 5."""


class _Look(NamedTuple):
    name: str
    colour: str
    symbol: str


_LOOKS = {
    ("met", False): _Look("met", "#009988", "circle"),
    ("costly", False): _Look("met but for the energy", "#8c7326", "square"),
    ("missed", False): _Look("missed", "#c2317f", "x"),
    ("missed", True): _Look("missed, ended early", "#c2317f", "x-open"),
    ("void", False): _Look("void", NEUTRAL, "diamond-open"),
    ("void", True): _Look("void, ended early", NEUTRAL, "diamond-open-dot"),
}
_LIMIT = "#0077bb"


def path_of_probes(record: SearchRecord) -> go.Figure:
    """Rate against the first percentile, both logarithmic, with 99% bounds and the objective."""
    drawn = [probe for probe in record.probes if _first(probe).value_ms is not None]
    figure = go.Figure()
    figure.add_trace(_path(drawn))
    for key, look in _LOOKS.items():
        own = [probe for probe in drawn if (probe.verdict, probe.cut) == key]
        if own:
            figure.add_trace(_points(own, look))
    rates = [probe.rate_rps for probe in drawn] or [1.0]
    if record.probes:
        figure.add_trace(_limit(_first(record.probes[0]), rates))
    lay_out(figure, height=460)
    name = _first(record.probes[0]).name if record.probes else "percentile"
    heights = [height for probe in drawn for height in _heights(probe)]
    figure.update_xaxes(title="Arrival rate (requests/s, log scale)", **_axis(rates))
    figure.update_yaxes(title=f"{name} response time (ms, log scale)", **_axis(heights))
    return figure


def _first(probe: ProbeRecord) -> LatencyRecord:
    return probe.latencies[0]


def _heights(probe: ProbeRecord) -> list[float]:
    found = _first(probe)
    values = (found.value_ms, found.low_ms, found.high_ms, found.limit_ms)
    return [value for value in values if value is not None]


def _path(probes: Sequence[ProbeRecord]) -> go.Scatter:
    return go.Scatter(
        x=[probe.rate_rps for probe in probes],
        y=[_first(probe).value_ms for probe in probes],
        mode="lines",
        line={"color": NEUTRAL, "width": 1, "dash": "dot"},
        hoverinfo="skip",
        showlegend=False,
    )


def _limit(found: LatencyRecord, rates: Sequence[float]) -> go.Scatter:
    return go.Scatter(
        x=[min(rates) / 2, max(rates) * 2],
        y=[found.limit_ms, found.limit_ms],
        mode="lines",
        name=f"objective, {milliseconds(found.limit_ms)} ms",
        line={"color": _LIMIT, "width": 2, "dash": "dash"},
        hoverinfo="skip",
    )


def _points(probes: Sequence[ProbeRecord], look: _Look) -> go.Scatter:
    found = [_first(probe) for probe in probes]
    return go.Scatter(
        x=[probe.rate_rps for probe in probes],
        y=[one.value_ms for one in found],
        mode="markers+text",
        name=look.name,
        # The spaces keep the text off the marker, and a repeat stands on the other side.
        text=[f"  {probe.number}  " for probe in probes],
        textposition=[("middle left", "middle right")[probe.number % 2] for probe in probes],
        textfont={"size": 12},
        marker={
            "color": look.colour,
            "size": 10,
            "symbol": look.symbol,
            "line": {"color": look.colour, "width": 2},
        },
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_beyond(one.high_ms, one.value_ms) for one in found],
            "arrayminus": [_beyond(one.value_ms, one.low_ms) for one in found],
            "thickness": 1.5,
            "width": 5,
        },
        hovertext=[_hover(probe) for probe in probes],
        hoverinfo="text",
        cliponaxis=False,
    )


def _beyond(upper: float | None, lower: float | None) -> float:
    """Length of an error bar; none where a bound is missing."""
    return 0.0 if upper is None or lower is None else upper - lower


def _hover(probe: ProbeRecord) -> str:
    found = _first(probe)
    high = "no bound" if found.high_ms is None else f"{milliseconds(found.high_ms)} ms"
    return (
        f"<b>Probe {probe.number}</b>, {probe.rate_rps:,g} requests/s: {probe.verdict}"
        f"{', ended early' if probe.cut else ''}<br>"
        f"{found.name} {milliseconds(found.value_ms)} ms, upper bound {high}"
    )


def _axis(values: Sequence[float]) -> dict[str, Any]:
    axis = log_axis(values, 1.25)
    if not values or max(values) / min(values) >= _WIDE:
        return axis
    low, high = (10**end for end in axis["range"])
    step = 10 ** math.floor(math.log10((high - low) / 3))
    step *= next(factor for factor in (1, 2, 5, 10) if (high - low) / (step * factor) < 7)
    ticks = [step * n for n in range(math.ceil(low / step), math.floor(high / step) + 1)]
    return {**axis, "tickvals": ticks, "ticktext": [f"{tick:,.6g}" for tick in ticks]}
