"""``tune.html``: a search over settings on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from loadtest.folder import ResultsFolder
from loadtest.report import numbers
from loadtest.report.answer import Answer
from loadtest.report.templates import Figure, figure_of, template
from loadtest.rounding import four_digits
from loadtest.tune.figures import COST_AXES, effects_figure, front_figure, path_figure
from loadtest.tune.record import GainRecord, TunedBackend, TuneRecord

NAME = "tune.html"
_TEMPLATE = Path(__file__).with_name("tune.html.j2")
BADGES = {"searched": "passed", "pruned": "", "not reachable": "open", "failed": "failed"}
_DECISIONS = {
    "gain": Answer("winner", "Gain"),
    "only tuned": Answer("winner", "Only the tuned setting"),
    "no significant gain": Answer("open", "No significant gain"),
    "loss": Answer("open", "Keep the default"),
    "not confirmed": Answer("open", "Not confirmed"),
    "too few": Answer("open", "Too few repeats"),
}


class Section(NamedTuple):
    """One backend; ids in the page begin with ``place``."""

    place: str
    backend: TunedBackend
    answer: Answer
    figures: tuple[Figure, ...]


def write_page(folder: ResultsFolder, record: TuneRecord) -> Path:
    """Write the page beside what it is made from, whole or not at all; returns its path."""
    return folder.write_page(NAME, render(record))


def render(record: TuneRecord) -> str:
    """The page; whatever a user may have written is escaped."""
    sections = [
        Section(f"b{place}", backend, answer_of(backend), tuple(_figures(f"b{place}", backend)))
        for place, backend in enumerate(record.backends, 1)
    ]
    page: str = template(_TEMPLATE).render(
        record=record,
        manifest=record.manifest,
        settings=record.manifest.settings,
        sections=sections,
        texts={one.arm: one.text for backend in record.backends for one in backend.tried},
        badges=BADGES,
        interval=interval,
        four_digits=four_digits,
        n=numbers,
    )
    return page


def answer_of(backend: TunedBackend) -> Answer:
    if backend.excluded:
        return Answer("none", "Not searched")
    if not backend.complete:
        return Answer("open", "Not finished")
    if backend.best is None:
        return Answer("none", "Not reachable")
    if backend.gain is not None:
        return _DECISIONS[backend.gain.decision]
    return Answer("winner", "Keep the default")


def interval(gain: GainRecord) -> str:
    if gain.ratio is None:
        return numbers.MISSING
    if gain.low is None or gain.high is None:
        return f"{gain.ratio:.3f}"
    return f"{gain.ratio:.3f} ({gain.low:.3f} to {gain.high:.3f})"


def _figures(place: str, backend: TunedBackend) -> Iterator[Figure]:
    known = [one for one in backend.tried if one.outcome and one.outcome.goodput_rps]
    if known:
        for cost in backend.costs:
            yield figure_of(
                f"{place}-front-{cost}",
                f"What goodput costs: {cost.partition('_')[0]}",
                "Low and far right is better. A setting is on the front when no other serves as "
                "much without costing more of anything, which may be in another figure; costs "
                "within 5% count as equal.",
                f"Scatter plot of goodput against {COST_AXES[cost].title} per setting.",
                front_figure(backend, cost),
            )
    if any(one.outcome for one in backend.tried):
        yield figure_of(
            f"{place}-path",
            "Path of the search",
            "A setting that could not beat the best so far was left early: what is drawn of it is "
            "an estimate from two short closed loops.",
            "Scatter plot of goodput per setting in the order of the search.",
            path_figure(backend),
        )
    if backend.effects and known:
        yield figure_of(
            f"{place}-effects",
            "Which knobs mattered",
            "Each value stands for the best setting that has it, estimates included. A knob did "
            "not matter when its worst value loses less than the dashed line, which is how well "
            "rates are known; it mattered when two that were searched to the end and differ in it "
            "alone differ by more.",
            "Bars of the loss by the worst value of each knob.",
            effects_figure(backend.effects),
        )
