"""``plan.html``: how many replicas a demand needs, on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from markupsafe import Markup

from loadtest.folder import ResultsFolder
from loadtest.links.profile import ASSUMPTION
from loadtest.plan import wording
from loadtest.plan.figures import (
    Drawn,
    curve_figure,
    drawn_of,
    fleet_figure,
    states_of,
    stress_figure,
)
from loadtest.plan.record import Plan, WireCost
from loadtest.report import numbers
from loadtest.report.templates import Figure, figure_of, template
from loadtest.rounding import four_digits

NAME = "plan.html"
_TEMPLATE = Path(__file__).with_name("plan.html.j2")
_SWATCH = Markup('<span class="swatch" style="--colour: {}" aria-hidden="true"></span>')


class Wire(NamedTuple):
    """What a frame weighs, and the options for which that holds."""

    labels: tuple[str, ...]
    costs: tuple[WireCost, ...]


def write_page(path: Path, plan: Plan) -> Path:
    """Write the page to the file ``path``, whole or not at all; returns where it lies.

    Raises:
        UsageError: the objective cannot be read.
    """
    return ResultsFolder(path.parent).write_page(path.name, render(plan))


def render(plan: Plan) -> str:
    """The page; whatever a user may have written is escaped."""
    drawn = drawn_of(plan)
    page: str = template(_TEMPLATE).render(
        plan=plan,
        asked=plan.asked,
        drawn=drawn,
        answer=wording.answer_of(plan),
        chosen=wording.chosen_of(plan),
        percentile=wording.percentile_of(plan).name,
        figures={figure.id: figure for figure in _figures(plan)},
        names={one.option.profile: name_of(one) for one in reversed(drawn)},
        name_of=name_of,
        wires=wires_of(plan),
        assumption=ASSUMPTION,
        four_digits=four_digits,
        w=wording,
        n=numbers,
    )
    return page


def name_of(one: Drawn) -> Markup:
    """The option's name behind its colour."""
    return _SWATCH.format(one.style.colour) + one.label


def wires_of(plan: Plan) -> tuple[Wire, ...]:
    """Options with equal numbers share a table, as those on one link do."""
    found: dict[tuple[WireCost, ...], list[str]] = {}
    for option, label in zip(plan.options, wording.labels_of(plan), strict=True):
        if option.wire:
            found.setdefault(option.wire, []).append(label)
    return tuple(Wire(tuple(labels), costs) for costs, labels in found.items())


def _figures(plan: Plan) -> Iterator[Figure]:
    asked, name = plan.asked, wording.percentile_of(plan).name
    if any(option.fleet for option in plan.options):
        yield figure_of(
            "fleet",
            "Devices against demand",
            "The points were worked out; between two of them the larger number is enough. "
            f"Of it {asked.survive} may fail at once, and {asked.headroom:.0%} of the usable rate "
            "stays unused. Stars are this plan.",
            "Line plot in steps of how many devices a demand needs, per option.",
            fleet_figure(plan),
        )
    if any(option.curve for option in plan.options):
        link = "Lines are without the link. Stars are this plan, with the link. "
        yield figure_of(
            "curve",
            f"Predicted {name} against utilisation",
            f"{link if asked.link else 'Stars are this plan. '}A band holds 18 of 20 simulated "
            "windows. Points with bars were measured on the real server, at loads that the "
            "prediction had not seen: a cross missed by more than 15%, a hollow point is INVALID.",
            f"Line plot of the predicted {name} of one replica against its utilisation, per "
            "option, with measured points and the objective as a dashed line.",
            curve_figure(plan),
        )
    if any(value for option in plan.options for value in states_of(option)[1:]):
        yield figure_of(
            "stress",
            f"{name} when something goes wrong",
            "Bars hold 18 of 20 simulated windows. An option without a point cannot keep up, or "
            "has no number.",
            f"Points with bars of the predicted {name} as planned, after a failure and in a "
            "burst, per option, with the objective as a dashed line.",
            stress_figure(plan),
        )
