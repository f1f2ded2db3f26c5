"""``search.html``: one search on one page that needs nothing else, in the report's look."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup
from plotly.offline import get_plotlyjs

from loadtest.folder import ResultsFolder
from loadtest.report import numbers
from loadtest.report.page import figure_of
from loadtest.report.templates import template
from loadtest.slo.figure import path_of_probes
from loadtest.slo.record import LatencyRecord, SearchRecord

NAME = "search.html"
_TEMPLATE = Path(__file__).with_name("search.html.j2")
BADGES = {"met": "passed", "costly": "open", "missed": "failed", "void": "open"}
ANSWERS = {
    "found": ("winner", "Found"),
    "at least": ("winner", "At least"),
    "not reachable": ("none", "Not reachable"),
    "open": ("open", "No full answer"),
}


def write_page(folder: ResultsFolder, record: SearchRecord) -> Path:
    """Write the page beside what it is made from, whole or not at all; returns its path."""
    return folder.write_page(NAME, render(record))


def render(record: SearchRecord) -> str:
    """The page; whatever a user may have written is escaped."""
    figure = figure_of(
        "path-of-probes",
        "Path of the probes",
        "The number at a point is its place in the order; bars are 99% bounds. A probe counts by "
        "its upper bound. Open crosses were ended early, so their value is that of a part.",
        "Scatter plot of the response time percentile against the arrival rate of each probe.",
        path_of_probes(record),
    )
    kind, label = ANSWERS[record.answer.kind]
    page: str = template(_TEMPLATE).render(
        record=record,
        manifest=record.manifest,
        settings=record.manifest.settings,
        badge=kind,
        label=label,
        badges=BADGES,
        figure=figure,
        bounds=_bounds,
        n=numbers,
        plotly=Markup(get_plotlyjs()),
    )
    return page


def _bounds(found: LatencyRecord) -> str:
    """Empty where the samples give none at all."""
    if found.low_ms is None:
        return ""
    high = "no bound" if found.high_ms is None else numbers.milliseconds(found.high_ms)
    return f"{numbers.milliseconds(found.low_ms)} to {high}"
