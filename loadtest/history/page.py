"""A history as one HTML page that needs nothing else, and as a picture."""

from __future__ import annotations

from pathlib import Path

from loadtest.exporting.extras import needed
from loadtest.history.figure import figure_of, line_name, title_of
from loadtest.history.runs import History
from loadtest.report.templates import figure_data, template
from loadtest.rounding import four_digits
from serving.errors import MachineError

_TEMPLATE = Path(__file__).with_name("history.html.j2")
_WIDTH = 1200


def render(history: History) -> str:
    """The whole page; whatever a user may have written is escaped."""
    page: str = template(_TEMPLATE).render(
        history=history,
        measure=history.measure,
        figure=figure_data(figure_of(history)),
        title_of=title_of,
        line_name=line_name,
        four_digits=four_digits,
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
