"""Summary to one HTML page that needs nothing else: no network, no other file."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import plotly.graph_objects as go
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from loadtest.analysis import percentile_name
from loadtest.confidence import sample_floor
from loadtest.report import figures, numbers
from loadtest.report.resources import GPU_COLUMNS, section_of
from loadtest.report.templates import figure_data, template
from loadtest.results import Ranking, Summary
from loadtest.scenarios import is_closed

_TEMPLATE = Path(__file__).with_name("page.html.j2")


class Figure(NamedTuple):
    id: str
    title: str
    caption: str
    described: str
    data: Markup


class Answer(NamedTuple):
    """How sure the ranking is: a word for the badge and the class that colours it."""

    kind: str
    label: str


def render(summary: Summary) -> str:
    """The whole report; whatever a user may have written is escaped."""
    page: str = template(_TEMPLATE).render(
        summary=summary,
        manifest=summary.manifest,
        settings=summary.manifest.settings,
        answer=answer_of(summary.ranking),
        levels=", ".join(f"{level:g}" for level in summary.manifest.settings.levels),
        closed=is_closed(summary.manifest.settings),
        styles=figures.styles(summary),
        resources=section_of(summary),
        gpu_columns=GPU_COLUMNS,
        figures=_figures(summary) if _has_points(summary) else (),
        percentiles=[field for field, _ in numbers.PERCENTILES],
        floors=[
            (percentile_name(field), sample_floor(quantile))
            for field, quantile in numbers.PERCENTILES
        ],
        shared_cpus=set(summary.manifest.settings.server_cpus)
        & set(summary.manifest.settings.client_cpus),
        percentile_name=percentile_name,
        n=numbers,
        plotly=Markup(get_plotlyjs()),
    )
    return page


def answer_of(ranking: Ranking) -> Answer:
    """Winner, tie, undecided, or no answer at all."""
    if ranking.winner is not None:
        return Answer("winner", f"Winner: {ranking.winner}")
    if not ranking.rows:
        return Answer("none", "No answer")
    if len(ranking.rows) == 1:
        return Answer("open", "Nothing to compare with")
    first, second = ranking.rows[:2]
    overlap = first.inferences_per_s_range[0] <= second.inferences_per_s_range[1]
    return Answer("open", "Tie") if overlap else Answer("open", "Undecided")


def _has_points(summary: Summary) -> bool:
    return any(backend.points for backend in summary.backends)


def _figures(summary: Summary) -> tuple[Figure, ...]:
    field = figures.common_percentile(summary)
    name = percentile_name(field)
    lower = (
        ""
        if field == "p99"
        else f" {name} is shown because not every VALID point has enough samples for p99."
    )
    return (
        figure_of(
            "throughput-latency",
            "Throughput against response time",
            "Right and low is better; the axes do not start at zero. The number at a point is "
            f"its level ({figures.level_name(summary)}); hollow points with ✕ are INVALID.{lower}",
            f"Scatter plot of inferences per second against {name} response time.",
            figures.throughput_against_latency(summary),
        ),
        figure_of(
            "latency-percentiles",
            "Response time percentiles",
            "One panel per level, one common scale. A percentile without enough samples "
            "is left out, not guessed.",
            "Line plots of the p50, p90, p95 and p99 response time per backend and level.",
            figures.latency_percentiles(summary),
        ),
        figure_of(
            "throughput-level",
            "Throughput against level",
            "Points are the median over repeats; bars reach from the lowest to the highest.",
            "Line plot of inferences per second against level, with the range of repeats.",
            figures.throughput_against_level(summary),
        ),
    )


def figure_of(identity: str, title: str, caption: str, described: str, figure: go.Figure) -> Figure:
    """What the template needs of a figure."""
    told = f"{described} All its numbers are in the tables."
    return Figure(identity, title, caption, told, figure_data(figure))
