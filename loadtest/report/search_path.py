"""The path of a backend's searches: what each probe measured at its rate. Pure.

The first search is drawn with its order; later ones, which begin where it ended, as small points.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import plotly.graph_objects as go

from loadtest.report.figures import NEUTRAL, error_bars, lay_out, log_axis, objective_line
from loadtest.report.numbers import milliseconds
from loadtest.searched import LatencyRecord, ProbeRecord, SearchRecord


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

Drawn = tuple[SearchRecord, ProbeRecord]


def path_of_probes(searches: Sequence[SearchRecord]) -> go.Figure:
    """Rate against the first percentile, both logarithmic, with 99% bounds and the objective.

    ``searches`` are of one backend; a band spans the rates that they found.
    """
    probes = [(one, probe) for one in searches for probe in one.probes]
    drawn = [(one, probe) for one, probe in probes if _first(probe).value_ms is not None]
    figure = go.Figure()
    if searches:
        figure.add_trace(_path([probe for one, probe in drawn if one is searches[0]]))
    for key, look in _LOOKS.items():
        own = [one for one in drawn if (one[1].verdict, one[1].cut) == key]
        for trace in _traces(own, look, searches):
            figure.add_trace(trace)
    rates = [probe.rate_rps for _, probe in drawn] or [1.0]
    if probes:
        figure.add_trace(
            objective_line(_first(probes[0][1]).limit_ms, min(rates) / 2, max(rates) * 2)
        )
    found = [one.found_rps for one in searches if one.found_rps is not None]
    if len(found) > 1:
        band = {"fillcolor": "rgba(0,153,136,0.15)", "line_width": 0, "layer": "below"}
        figure.add_vrect(x0=min(found), x1=max(found), **band)
    lay_out(figure, height=400)
    name = _first(probes[0][1]).name if probes else "percentile"
    heights = [height for _, probe in drawn for height in _heights(probe)]
    figure.update_xaxes(title="Arrival rate (requests/s, log scale)", **log_axis(rates, 1.25))
    figure.update_yaxes(title=f"{name} response time (ms, log scale)", **log_axis(heights, 1.25))
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


def _traces(
    drawn: Sequence[Drawn], look: _Look, searches: Sequence[SearchRecord]
) -> Iterator[go.Scatter]:
    """What looks alike: of the first search, and of those after it."""
    first = [one for one in drawn if one[0] is searches[0]]
    later = [one for one in drawn if one[0] is not searches[0]]
    if first:
        yield _points(first, look, numbered=True)
    if later:
        trace = _points(later, look, numbered=False)
        trace.showlegend = not first
        yield trace


def _points(drawn: Sequence[Drawn], look: _Look, *, numbered: bool) -> go.Scatter:
    probes = [probe for _, probe in drawn]
    found = [_first(probe) for probe in probes]
    values = [one.value_ms or 0.0 for one in found]
    return go.Scatter(
        x=[probe.rate_rps for probe in probes],
        y=values,
        mode="markers+text" if numbered else "markers",
        name=look.name,
        legendgroup=look.name,
        # The spaces keep the text off the marker, and a repeat stands on the other side.
        text=[f"  {probe.number}  " for probe in probes] if numbered else None,
        textposition=[("middle left", "middle right")[probe.number % 2] for probe in probes],
        textfont={"size": 12},
        opacity=1.0 if numbered else 0.75,
        marker={
            "color": look.colour,
            "size": 10 if numbered else 6,
            "symbol": look.symbol,
            "line": {"color": look.colour, "width": 2 if numbered else 1},
        },
        # Bars of every repeat would hide the points.
        error_y=error_bars(
            values,
            [v if one.low_ms is None else one.low_ms for v, one in zip(values, found, strict=True)],
            [
                v if one.high_ms is None else one.high_ms
                for v, one in zip(values, found, strict=True)
            ],
        )
        if numbered
        else None,
        hovertext=[_hover(*one) for one in drawn],
        hoverinfo="text",
        cliponaxis=False,
    )


def _hover(search: SearchRecord, probe: ProbeRecord) -> str:
    found = _first(probe)
    high = "no bound" if found.high_ms is None else f"{milliseconds(found.high_ms)} ms"
    return (
        f"<b>Search {search.repeat}, probe {probe.number}</b>, {probe.rate_rps:,g} requests/s: "
        f"{probe.verdict}{', ended early' if probe.cut else ''}<br>"
        f"{found.name} {milliseconds(found.value_ms)} ms, upper bound {high}"
    )
