"""What every page shares: the report's style and script, escaping, and figures as data."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup


@cache
def template(path: Path) -> Any:
    """The template at ``path``; it may include what lies beside the report's own."""
    environment = Environment(
        loader=FileSystemLoader([path.parent, Path(__file__).parent]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(path.name)


def figure_data(figure: go.Figure) -> Markup:
    """JSON for a script element, which only ``<`` could end early."""
    return Markup(figure.to_json().replace("<", "\\u003c"))
