"""What every page shares: the report's base, style and script, escaping, and figures as data."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs


class Figure(NamedTuple):
    """What the macro ``drawn`` needs of a figure; ``id`` is that of its element."""

    id: str
    title: str
    caption: str
    described: str
    data: Markup


@cache
def template(path: Path) -> Any:
    """The template at ``path``; it may extend ``base.html.j2`` and include the report's parts."""
    environment = Environment(
        loader=FileSystemLoader([path.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["plotly_source"] = _plotly_source
    return environment.get_template(path.name)


@cache
def _plotly_source() -> Markup:
    return Markup(get_plotlyjs())


def figure_of(identity: str, title: str, caption: str, described: str, figure: go.Figure) -> Figure:
    """What a template needs to draw ``figure`` under a heading."""
    told = f"{described} All its numbers are in the tables."
    return Figure(identity, title, caption, told, figure_data(figure))


def figure_data(figure: go.Figure) -> Markup:
    """JSON for a script element, which only ``<`` could end early."""
    return Markup(figure.to_json().replace("<", "\\u003c"))
