"""The highest rate of a search as a point like any other, for who compares or lists runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from loadtest.results import BackendRecord, Settings, Trial
from loadtest.searched import SearchRecord
from loadtest.summary import is_searched

HIGHEST = math.inf
"""Stands for a level where a search has found it, for each repeat another one."""


def levels_of(settings: Settings) -> tuple[float, ...]:
    return (HIGHEST,) if settings.objectives else settings.levels


def trials_at(trials: Iterable[Trial], backend: str, level: float) -> list[Trial]:
    own = (trial for trial in trials if trial.backend == backend)
    return [trial for trial in own if level in (HIGHEST, trial.level)]


def point_name(level: float, level_name: str) -> str:
    """Such as ``8 users``."""
    return "the highest rate" if level == HIGHEST else f"{level:g} {level_name}"


def comparable(
    settings: Settings, trials: Sequence[Trial], searches: Sequence[SearchRecord]
) -> Sequence[Trial]:
    """All trials; of searches the window at the answer's rate, one for each repeat."""
    if not settings.objectives:
        return trials
    best = {search.best.trial for search in searches if search.best is not None}
    return [trial for trial in trials if trial.id in best]


@dataclass(frozen=True)
class Progress:
    """How much of what a run was to measure is there, in words too."""

    complete: bool
    told: str


def progress_of(
    settings: Settings,
    trials: Sequence[Trial],
    records: Mapping[str, BackendRecord],
    searches: Sequence[SearchRecord],
) -> Progress:
    """Of a run as it lies on disk; what was left out was not to be measured."""
    left_out = [label for label, record in records.items() if record.excluded]
    measured = [label for label in settings.backends if label not in left_out]
    if settings.objectives:
        own = {label: [one for one in searches if one.backend == label] for label in measured}
        lacking = [label for label in measured if not is_searched(own[label], settings.repeats)]
        if lacking:
            return Progress(complete=False, told=f"searches of {', '.join(lacking)} are missing")
        return Progress(complete=True, told=f"{len(searches)} searches")
    planned = len(measured) * len(settings.levels) * settings.repeats
    done = sum(trial.backend in measured for trial in trials)
    return Progress(done >= planned, f"{done} of {planned} trials")
