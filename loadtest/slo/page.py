"""``search.html``: one search on one page that needs nothing else, in the report's look."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

import loadtest.report
from loadtest.folder import ResultsFolder
from loadtest.report import numbers
from loadtest.report.page import figure_of
from loadtest.slo.figure import path_of_probes
from loadtest.slo.record import LatencyRecord, SearchRecord

NAME = "search.html"
BADGES = {"met": "passed", "costly": "open", "missed": "failed", "void": "open"}
ANSWERS = {
    "found": ("winner", "Found"),
    "at least": ("winner", "At least"),
    "not reachable": ("none", "Not reachable"),
    "open": ("open", "No full answer"),
}


def write_page(folder: ResultsFolder, record: SearchRecord) -> Path:
    """Write the page beside what it is made from, whole or not at all; returns its path."""
    path = folder.path / NAME
    part = path.with_name(f".{NAME}.part")
    part.write_text(render(record), encoding="utf-8")
    part.replace(path)
    return path


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
    page: str = _template().render(
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


@cache
def _template() -> Any:
    report = Path(loadtest.report.__file__).parent
    environment = Environment(
        loader=FileSystemLoader([Path(__file__).parent, report]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("search.html.j2")
