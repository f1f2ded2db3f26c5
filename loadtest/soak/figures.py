"""A soak over time: throughput, p99, clocks, temperature and power below each other. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import plotly.graph_objects as go
from plotly.subplots import make_subplots

from loadtest.report.figures import COLOURS, lay_out, plain
from loadtest.rounding import four_digits
from loadtest.soak.record import SoakRecord, SoakWindow, Stretch

_ROW_PX = 190
_SHADED = "rgba(122,130,140,0.14)"
_GHZ = 1e9
_MOST_LINES = 6
"""More lines in one row could not be told apart; the tables have them all."""


class _Row(NamedTuple):
    title: str
    lines: dict[str, list[float | None]]
    from_zero: bool


def course_figure(record: SoakRecord) -> go.Figure:
    """One row for everything that was measured at all; shaded is what was compared."""
    rows = [row for row in _rows(record.windows) if row.lines]
    figure = make_subplots(rows=len(rows), cols=1, shared_xaxes=True, vertical_spacing=0.035)
    minutes = [(one.start_s + one.length_s / 2) / 60 for one in record.windows]
    colour = 0
    for number, row in enumerate(rows, 1):
        for name, values in row.lines.items():
            told = f"<b>{plain(name)}</b><br>%{{x:.1f}} min: %{{y:.4g}}<extra></extra>"
            figure.add_trace(
                go.Scatter(
                    x=minutes,
                    y=values,
                    mode="lines+markers",
                    name=plain(name),
                    line={"color": COLOURS[colour % len(COLOURS)], "width": 2},
                    marker={"size": 5, "symbol": _symbols(record.windows)},
                    hovertemplate=told,
                    connectgaps=False,
                ),
                row=number,
                col=1,
            )
            colour += 1
        figure.update_yaxes(
            title=row.title, rangemode="tozero" if row.from_zero else "normal", row=number, col=1
        )
    lay_out(figure, height=110 + _ROW_PX * len(rows))
    for stretch in (record.cold, record.soaked):
        if stretch is not None:
            _shade(figure, stretch)
    figure.update_xaxes(zeroline=False)
    figure.update_xaxes(title="minutes since the load began", row=len(rows), col=1)
    return figure


def _symbols(windows: Sequence[SoakWindow]) -> list[str]:
    return ["circle" if one.counts else "circle-open" for one in windows]


def _shade(figure: go.Figure, stretch: Stretch) -> None:
    figure.add_vrect(
        x0=stretch.start_s / 60,
        x1=stretch.end_s / 60,
        fillcolor=_SHADED,
        line_width=0,
        layer="below",
    )


def _rows(windows: Sequence[SoakWindow]) -> list[_Row]:
    def one(value: Callable[[SoakWindow], float | None]) -> list[float | None]:
        return [value(window) for window in windows]

    rates, p99s = one(lambda w: w.inferences_per_s), one(lambda w: w.p99_ms)
    watts = one(lambda w: w.gauges.watts)
    return [
        _Row("inferences/s", {"throughput": rates}, from_zero=True),
        _Row("p99 (ms)", _known({"p99": p99s}), from_zero=True),
        _Row("clock (GHz)", _named(windows, "clocks", 1 / _GHZ), from_zero=False),
        _Row("temperature (°C)", _named(windows, "celsius", 1.0), from_zero=False),
        _Row("power (W)", _known({"machine": watts}), from_zero=True),
    ]


def _known(lines: dict[str, list[float | None]]) -> dict[str, list[float | None]]:
    return {name: line for name, line in lines.items() if any(v is not None for v in line)}


def _named(windows: Sequence[SoakWindow], field: str, unit: float) -> dict[str, list[float | None]]:
    """Those that move most; equal groups of cores would lie on each other."""
    held: list[dict[str, float]] = [getattr(window.gauges, field) for window in windows]
    names = dict.fromkeys(name for values in held for name in values)
    lines = {n: [v[n] * unit if n in v else None for v in held] for n in names}
    moved = sorted(lines, key=lambda n: -_span(lines[n]))[:_MOST_LINES]
    return {name: lines[name] for name in names if name in moved}


def _span(line: Sequence[float | None]) -> float:
    known = [value for value in line if value is not None]
    return max(known) - min(known)


def described(record: SoakRecord) -> str:
    """The figure for whoever cannot see it."""
    rates = [one.inferences_per_s for one in record.windows]
    return (
        f"Lines over {record.measured_s / 60:.0f} minutes: throughput from {four_digits(rates[0])} "
        f"to {four_digits(rates[-1])} inferences per second, and every sensor that could be read."
    )
