"""A history as one HTML page that needs nothing else, and as a picture."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from plotly.offline import get_plotlyjs

import loadtest.report
from loadtest.exporting.extras import needed
from loadtest.history.figure import figure_of, line_name, number, title_of
from loadtest.history.runs import History
from serving.errors import MachineError

_WIDTH = 1200


def render(history: History) -> str:
    """The whole page; whatever a user may have written is escaped."""
    # Inside a script element only "<" could end the data early.
    figure = Markup(figure_of(history).to_json().replace("<", "\\u003c"))
    page: str = _template().render(
        history=history,
        measure=history.measure,
        figure=figure,
        title_of=title_of,
        line_name=line_name,
        number=number,
        plotly=Markup(get_plotlyjs()),
    )
    return page


def picture(history: History) -> bytes:
    """A PNG on white.

    Raises:
        MachineError: kaleido or the browser that it draws with is not installed.
    """
    needed("kaleido", "a PNG")
    figure = figure_of(history)
    figure.update_layout(paper_bgcolor="white", plot_bgcolor="white", font={"color": "#1b1f24"})
    try:
        drawn: bytes = figure.to_image(format="png", width=_WIDTH, scale=2)
    except (RuntimeError, OSError) as error:
        raise MachineError(
            f"a PNG could not be drawn: {str(error).strip().splitlines()[0]}",
            hint="Install Chrome or Chromium, or name a file that ends in .html.",
        ) from None
    return drawn


@cache
def _template() -> Any:
    """The style and the script are the report's."""
    folders = [Path(__file__).parent, Path(loadtest.report.__file__).parent]
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("history.html.j2")
