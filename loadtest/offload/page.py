"""``offload.html``: onboard against offload on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import plotly.graph_objects as go

from loadtest.folder import ResultsFolder
from loadtest.offload.record import OffloadRecord, OutageRecord, SideRecord, Spread
from loadtest.report import numbers
from loadtest.report.answer import Answer
from loadtest.report.figures import COLOURS, NEUTRAL, OBJECTIVE_COLOUR, lay_out, log_axis
from loadtest.report.templates import Figure, figure_of, template
from loadtest.rounding import four_digits

NAME = "offload.html"
MODES = {
    "onboard": "onboard",
    "offload": "offload alone",
    "fallback": "offload, falling back onboard",
}
_DASHES = {"onboard": "dot", "offload": "dash", "fallback": "solid"}
_TEMPLATE = Path(__file__).with_name("offload.html.j2")


def write_page(folder: ResultsFolder, record: OffloadRecord) -> Path:
    """Write the page beside what it is made from, whole or not at all; returns its path."""
    return folder.write_page(NAME, render(record))


def render(record: OffloadRecord) -> str:
    """The page; whatever a user may have written is escaped."""
    page: str = template(_TEMPLATE).render(
        record=record,
        manifest=record.manifest,
        settings=record.manifest.settings,
        answer=answer_of(record),
        figures=tuple(_figures(record)),
        modes=MODES,
        interval=interval(record),
        share=share,
        spread=spread,
        four_digits=four_digits,
        n=numbers,
    )
    return page


def answer_of(record: OffloadRecord) -> Answer:
    if not record.complete:
        return Answer("open", "Not finished")
    if record.decision.better is not None:
        return Answer("winner", "Onboard" if record.decision.better == "onboard" else "Offload")
    if "No significant difference" in record.decision.sentence:
        return Answer("open", "No significant difference")
    return Answer("none", "No answer")


def interval(record: OffloadRecord) -> str:
    """The margin: offload over onboard."""
    found = record.decision
    if found.ratio is None or found.low is None or found.high is None:
        return numbers.MISSING
    return f"{found.ratio:.3g} ({found.low:.3g} to {found.high:.3g})"


def share(value: float | None) -> str:
    return numbers.MISSING if value is None else f"{value:.2%}"


def spread(found: Spread, *, percent: bool = True) -> str:
    """Median and bounds, as percent or as milliseconds; one number where all are written alike."""
    write = share if percent else numbers.milliseconds
    value, low, high = map(write, (found.value, found.low, found.high))
    return value if low == high else f"{value} ({low} to {high})"


def _figures(record: OffloadRecord) -> Iterator[Figure]:
    measured = [side for side in record.sides if side.repeats]
    if measured:
        yield figure_of(
            "ages",
            "Frame age in each repeat",
            "From when a frame was due to its answer. The line from the median to the p99 is one "
            "repeat; hollow marks do not count.",
            "Median and p99 frame age of each repeat of both sides.",
            ages_figure(measured, record.deadline_ms),
        )
    if record.outage is not None:
        yield figure_of(
            "outage",
            "Age of the newest answer around the outage",
            "Simulated, of one camera: how old the answer that the device acts on has become just "
            "before the next one. The link is down in the grey band.",
            "Lines of the age of the newest answer over time, for three ways to meet an outage.",
            outage_figure(record.outage),
        )


def ages_figure(sides: list[SideRecord], deadline_ms: float) -> go.Figure:
    figure = go.Figure()
    for number, side in enumerate(sides):
        shown_of_legend = True
        for one in side.repeats:
            if one.age_p50_ms is None:
                continue
            ages_ms = [one.age_p50_ms] + ([one.age_p99_ms] if one.age_p99_ms is not None else [])
            mark = "circle" if one.counts else "circle-open"
            figure.add_scatter(
                x=ages_ms,
                y=[f"{side.side}, {place_of(one.trial)}"] * len(ages_ms),
                mode="lines+markers",
                name=side.side,
                legendgroup=side.side,
                showlegend=shown_of_legend,
                line={"color": COLOURS[number], "width": 2},
                marker={"color": COLOURS[number], "size": 9, "symbol": mark},
                hovertemplate="%{x:.1f} ms<extra>%{y}</extra>",
            )
            shown_of_legend = False
    deadline = {"color": OBJECTIVE_COLOUR, "width": 2, "dash": "dash"}
    figure.add_vline(x=deadline_ms, line=deadline)
    name = f"deadline, {deadline_ms:g} ms"
    figure.add_scatter(x=[None], y=[None], mode="lines", line=deadline, name=name)
    lay_out(figure, height=120 + 44 * sum(len(side.repeats) for side in sides))
    figure.update_xaxes(title="frame age (ms)", rangemode="tozero")
    figure.update_yaxes(autorange="reversed")
    return figure


def place_of(trial: str) -> str:
    """``repeat 2`` of ``onboard-l1-r2``."""
    return f"repeat {trial.rpartition('-r')[2]}"


def outage_figure(outage: OutageRecord) -> go.Figure:
    figure = go.Figure()
    for number, outcome in enumerate(outage.outcomes):
        figure.add_scatter(
            x=[at_s for at_s, _ in outcome.line],
            y=[age_ms for _, age_ms in outcome.line],
            mode="lines",
            name=MODES[outcome.mode],
            line={"color": COLOURS[number], "width": 2, "dash": _DASHES[outcome.mode]},
            hovertemplate="%{y:.0f} ms at %{x:.2f} s<extra></extra>",
        )
    end_s = outage.start_s + outage.outage_s
    figure.add_vrect(x0=outage.start_s, x1=end_s, fillcolor=NEUTRAL, opacity=0.2, line_width=0)
    lay_out(figure, height=380)
    figure.update_xaxes(title="time (s)")
    ages_ms = [age_ms for one in outage.outcomes for _, age_ms in one.line if age_ms > 0]
    figure.update_yaxes(title="age of the newest answer (ms)", **log_axis(ages_ms, 1.3))
    return figure
