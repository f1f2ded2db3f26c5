"""A history as one figure: a panel per group, a line per backend and level. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TypeVar

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from loadtest.highest import point_name
from loadtest.history.runs import Found, Group, History
from loadtest.report.figures import COLOURS, SYMBOLS, lay_out, plain
from loadtest.rounding import four_digits

_PANEL, _GAP = 320, 110
"""Height of a panel and of what lies between two, in pixels."""
_MOST_TICKS = 12

N = TypeVar("N", str, float)


def figure_of(history: History) -> go.Figure:
    """Groups share no line and no axis, since their figures cannot be compared."""
    groups = history.groups
    rows = max(1, len(groups))
    titles = [plain(title_of(group, history)) for group in groups]
    figure = make_subplots(
        rows=rows, cols=1, subplot_titles=titles, vertical_spacing=_GAP / (_PANEL * rows)
    )
    colours = _ranked(one.backend for g in groups for run in g.runs for one in run.found)
    symbols = _ranked(sorted({one.level for g in groups for run in g.runs for one in run.found}))
    named: set[str] = set()
    for row, group in enumerate(groups, 1):
        for line in group.series.values():
            first = line[0][1]
            trace = _trace(
                group,
                line,
                colour=COLOURS[colours[first.backend] % len(COLOURS)],
                symbol=SYMBOLS[symbols[first.level] % len(SYMBOLS)],
                unit=history.measure.unit,
            )
            trace.showlegend = trace.name not in named
            named.add(trace.name)
            figure.add_trace(trace, row=row, col=1)
        places, texts = _ticks(group)
        figure.update_xaxes(tickvals=places, ticktext=texts, row=row, col=1)
        figure.update_xaxes(range=[-0.5, len(group.runs) - 0.5], row=row, col=1)
    lay_out(figure, height=110 + _PANEL * rows)
    figure.update_layout(margin={"t": 84, "b": 64})
    figure.update_annotations(font_size=13)
    figure.update_xaxes(zeroline=False)
    figure.update_yaxes(rangemode="tozero")
    figure.update_yaxes(title=f"{history.measure.name} ({history.measure.unit})")
    return figure


def title_of(group: Group, history: History) -> str:
    """The model and the host, and what sets this group apart from the others."""
    told = [group.conditions["host"]]
    for name, value in group.conditions.items():
        if name != "host" and any(other.conditions[name] != value for other in history.groups):
            told.append(f"{name} {value}")
    return f"{group.model} on {', '.join(told)}"


def _trace(
    group: Group, line: list[tuple[int, Found]], *, colour: str, symbol: str, unit: str
) -> go.Scatter:
    name = line_name(group, line[0][1])
    return go.Scatter(
        x=[place for place, _ in line],
        y=[one.value for _, one in line],
        mode="lines+markers",
        name=plain(name),
        legendgroup=plain(name),
        line={"color": colour, "width": 2},
        marker={
            "color": colour,
            "size": 8,
            "symbol": [symbol + ("" if one.verdict == "VALID" else "-open") for _, one in line],
            "line": {"color": colour, "width": 2},
        },
        error_y={
            "type": "data",
            "symmetric": False,
            "array": [_beyond(one.high, one.value) for _, one in line],
            "arrayminus": [_beyond(one.value, one.low) for _, one in line],
            "thickness": 1.5,
            "width": 5,
        },
        hovertext=[_hover(group, place, one, unit) for place, one in line],
        hoverinfo="text",
    )


def line_name(group: Group, one: Found) -> str:
    """Backend and level, and what served where the group has several of that backend."""
    served = {key[2] for key in group.series if key[0] == one.backend}
    unit = group.runs[0].manifest.settings.level_name
    told = f", {', '.join(one.series.values())}" if len(served) > 1 else ""
    return f"{one.backend}, {point_name(one.level, unit)}{told}"


def _beyond(high: float | None, low: float | None) -> float | None:
    return None if high is None or low is None else high - low


def _hover(group: Group, place: int, one: Found, unit: str) -> str:
    run = group.runs[place]
    lines = (
        f"<b>{plain(line_name(group, one))}</b>, {one.verdict}",
        f"{four_digits(one.value)} {unit} ({four_digits(one.low)} to {four_digits(one.high)})",
        *([plain(one.why)] if one.why else []),
        f"{run.created:%Y-%m-%d %H:%M}, commit {plain(run.commit)}",
        plain(str(run.path)),
    )
    return "<br>".join(lines)


def _ticks(group: Group) -> tuple[list[int], list[str]]:
    """Every run is a place of its own; of many, some are named."""
    step = math.ceil(len(group.runs) / _MOST_TICKS)
    places = list(range(0, len(group.runs), step))
    runs = [group.runs[place] for place in places]
    return places, [f"{plain(run.commit[:9])}<br>{run.created:%Y-%m-%d}" for run in runs]


def _ranked(names: Iterable[N]) -> dict[N, int]:
    return {name: place for place, name in enumerate(dict.fromkeys(names))}
