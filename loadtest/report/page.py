"""One self-contained HTML page: works offline, asks nothing of any other host."""

from __future__ import annotations

import json
from pathlib import Path

import jinja2
from markupsafe import Markup
from plotly.offline import get_plotlyjs

from loadtest.analysis import sample_floor
from loadtest.report.figures import QUANTILES, common_quantile, figures
from loadtest.results import Point, Summary

_FOLDER = Path(__file__).parent
_TEMPLATE = "page.html.j2"


def render(summary: Summary) -> str:
    """The page's text; everything that a user may have written is escaped."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(_FOLDER),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {"number": _number, "percent": _percent, "megabytes": _megabytes}
    drawn = {title: json.loads(figure.to_json()) for title, figure in figures(summary).items()}
    return environment.get_template(_TEMPLATE).render(
        summary=summary,
        manifest=summary.manifest,
        settings=summary.manifest.settings,
        figures=drawn,
        figure_data=_script_json(list(drawn.values())),
        plotly=Markup(get_plotlyjs()),
        quantiles=QUANTILES,
        quantile_word=common_quantile([b for b in summary.backends if b.points])[1],
        floors={word: sample_floor(float(word[1:]) / 100) for _, word in QUANTILES},
        failures=_failures,
    )


def _script_json(value: object) -> Markup:
    """JSON that cannot end the script element it stands in."""
    return Markup(json.dumps(value).replace("<", "\\u003c").replace(">", "\\u003e"))


def _failures(point: Point) -> str:
    counts = {name: n for name, n in point.outcomes.items() if n and name != "ok"}
    return ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in counts.items()) or "none"


def _number(value: float | None, digits: int = 1) -> str:
    return "-" if value is None else f"{value:,.{digits}f}"


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _megabytes(value: int | None) -> str:
    return "-" if value is None else f"{value / 1e6:,.0f}"
