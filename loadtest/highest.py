"""The highest rate of a search as a point like any other, for who compares or lists runs. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from loadtest.analysis import HistogramReader
from loadtest.results import BackendRecord, Settings, Trial
from loadtest.summary import is_searched, searches_of

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
    settings: Settings, trials: Sequence[Trial], read: HistogramReader
) -> Sequence[Trial]:
    """All trials; of searches the window at the answer's rate, one for each repeat."""
    if not settings.objectives:
        return trials
    probes = [search.best for search in searches_of(settings, trials, read)]
    best = {probe.trial for probe in probes if probe is not None}
    return [trial for trial in trials if trial.id in best]


def missing(
    settings: Settings,
    trials: Sequence[Trial],
    records: Mapping[str, BackendRecord],
    read: HistogramReader,
) -> str:
    """What an unfinished run lacks, in words; empty where nothing does."""
    left_out = [label for label, record in records.items() if record.excluded]
    measured = [label for label in settings.backends if label not in left_out]
    if settings.objectives:
        found = list(searches_of(settings, trials, read))
        own = {label: [one for one in found if one.backend == label] for label in measured}
        open_ones = [label for label in measured if not is_searched(own[label], settings.repeats)]
        return f"searches of {', '.join(open_ones)} are missing" if open_ones else ""
    planned = len(measured) * len(settings.levels) * settings.repeats
    done = sum(trial.backend in measured for trial in trials)
    return f"{done} of {planned} trials" if done < planned else ""
