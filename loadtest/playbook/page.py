"""``playbook.html``: which tuning tips hold here, on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from loadtest.folder import ResultsFolder, file_name
from loadtest.playbook import wording
from loadtest.playbook.figures import (
    combination_figure,
    forest_figure,
    geometric_mean,
    values_figure,
)
from loadtest.playbook.judging import values_of
from loadtest.playbook.record import ArmRecord, ExperimentRecord, Playbook, WindowRecord
from loadtest.report import numbers
from loadtest.report.templates import Figure, figure_of, template
from loadtest.rounding import four_digits

NAME = "playbook.html"
_TEMPLATE = Path(__file__).with_name("playbook.html.j2")
BADGES = {
    "holds": "winner",
    "holds in part": "part",
    "no difference": "same",
    "opposite": "open",
    "breaks accuracy": "none",
    "cannot be measured here": "same",
    "failed": "failed",
}


class Line(NamedTuple):
    """One arm as cells of a table; ``why`` is what was found of it."""

    arm: ArmRecord
    role: str
    value: str
    numbers: wording.Numbers
    memory: str
    start: str
    why: str


class Section(NamedTuple):
    """One experiment; ids in the page begin with ``id``."""

    id: str
    record: ExperimentRecord
    label: str
    lines: tuple[Line, ...]
    figure: Figure | None
    height: int
    void: tuple[tuple[str, WindowRecord], ...]
    again: str


def write_page(folder: Path, playbook: Playbook) -> Path:
    """Write the page into ``folder``, whole or not at all; returns where it lies."""
    path, here = folder.absolute(), Path.cwd()
    # Shorter, and the same wherever the project lies.
    told = path.relative_to(here) if path.is_relative_to(here) else path
    return ResultsFolder(folder).write_page(NAME, render(playbook, str(told)))


def render(playbook: Playbook, folder: str) -> str:
    """The page; whatever a user may have written is escaped.

    Args:
        playbook: all that was measured.
        folder: where it lies, for the commands that measure one experiment again.
    """
    groups = wording.groups_of(playbook)
    sections = [
        _section(playbook, record, folder)
        for record in (*groups.measured, *groups.failed, *groups.missing)
        if record.arms
    ]
    page: str = template(_TEMPLATE).render(
        playbook=playbook,
        groups=groups,
        sections=sections,
        ids={section.record.name: section.id for section in sections},
        figures={figure.id: figure for figure in _figures(playbook, groups)},
        together=_together(playbook, folder),
        badges=BADGES,
        four_digits=four_digits,
        w=wording,
        n=numbers,
    )
    return page


def _figures(playbook: Playbook, groups: wording.Groups) -> Iterator[Figure]:
    if any(record.effect and record.effect.ratio for record in groups.measured):
        yield figure_of(
            "forest",
            "All effects",
            "Right of the line at 1 is better. Bars are 95% intervals; the pale bar is what people "
            "state, to the edge where they name no end.",
            "Forest plot of the ratio of each tip with its interval, beside the stated range.",
            forest_figure(groups.measured),
        )
    if playbook.combination:
        yield figure_of(
            "steps",
            "Predicted and measured",
            "Each effect alone, one upon the other: on this axis equal lengths are equal ratios. "
            "The measured bar has its 95% interval.",
            "Waterfall of the parts up to their product, and the measured ratio below it.",
            combination_figure(playbook.combination),
        )


def _together(playbook: Playbook, folder: str) -> Section | None:
    found = playbook.combination
    return _section(playbook, found.experiment, folder) if found else None


def _section(playbook: Playbook, record: ExperimentRecord, folder: str) -> Section:
    identity = f"tip-{file_name(record.name)}"
    void = tuple((arm.name, one) for arm in record.arms for one in arm.windows if one.reasons)
    drawn = values_figure(record)
    hollow = " A hollow dot is a window that does not count." if void else ""
    figure = drawn and figure_of(
        f"{identity}-values",
        record.title,
        f"One dot per repeat; the upright line is their geometric mean.{hollow}",
        f"Dots of the {record.unit} of each arm.",
        drawn,
    )
    return Section(
        identity,
        record,
        wording.label_of(record),
        tuple(_line(record, arm) for arm in record.arms),
        figure,
        int(drawn.layout.height) if drawn else 0,
        void,
        wording.again(playbook, record.name, folder),
    )


def _line(record: ExperimentRecord, arm: ArmRecord) -> Line:
    values = values_of(arm, record.measure)
    effect = next((effect for effect in record.effects if effect.arm == arm.name), None)
    roles = {record.baseline: "baseline", record.judged: "judged"}
    told = [f"{name}: {value}" for name, value in arm.facts.items()]
    if arm.answers and arm.answers.detail:
        told.insert(0, f"answers: {arm.answers.detail}")
    return Line(
        arm,
        roles.get(arm.name, ""),
        four_digits(geometric_mean(values) if values else None),
        wording.numbers_of(effect),
        numbers.size(arm.rss_bytes),
        f"{fmean(arm.start_s):.2f} s" if arm.start_s else numbers.MISSING,
        "; ".join(told),
    )
