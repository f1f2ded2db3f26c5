"""A finished run on the clock: when each window began, and what was counted in its seconds."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

from hdrh.histogram import HdrHistogram

from loadtest.folder import ResultsFolder
from loadtest.metrics import LOAD
from loadtest.results import NEVER_SENT, OUTCOMES, Histograms, Trial
from serving.errors import ResultsError
from serving.metrics.buckets import CLIENT_NS, bounds_with

Labels = Mapping[str, str]

LEAST_GAP_MS = 2
"""Prometheus cuts a time to ms after a multiplication, which may take one from it."""


@dataclass(frozen=True)
class MeasuredWindow:
    """One trial on the clock.

    Attributes:
        start_ms: Unix time.
        ticks_ms: the ends of its seconds; the last is the end of the window.
    """

    trial: Trial
    start_ms: int
    ticks_ms: tuple[int, ...]
    folder: ResultsFolder

    def histograms(self) -> Histograms:
        """Raises ResultsError when they are missing or not of this trial."""
        found = self.folder.read_histograms(self.trial.id)
        if {len(found.response_time), len(found.service_time)} != {len(self.ticks_ms)}:
            raise self._torn("the number of seconds")
        return found

    @cached_property
    def requests(self) -> dict[str, list[int]]:
        """Per outcome, those that were due in each second.

        Raises:
            ResultsError: the histograms do not hold what the trial counted.
        """
        windows = self.histograms().response_time
        found = {name: [_total(w.get(name)) for w in windows] for name in OUTCOMES}
        for name in NEVER_SENT:
            found[name][-1] += self.trial.outcomes[name]
        if {name: sum(counts) for name, counts in found.items()} != self.trial.outcomes:
            raise self._torn("the outcomes")
        return found

    def _torn(self, what: str) -> ResultsError:
        return ResultsError(
            f"{self.folder.path} is damaged: {what} of trial {self.trial.id} differ from its "
            "histograms",
            hint="Restore the folder.",
        )


@dataclass(frozen=True)
class Target:
    """The trials of one run against one backend: what shares the labels of a load.

    Attributes:
        windows: by their start; none overlap.
        bounds_ns: upper bounds of the buckets, the objective among them.
    """

    labels: Labels
    windows: tuple[MeasuredWindow, ...]
    slo_ns: int | None
    bounds_ns: tuple[int, ...]


@dataclass(frozen=True)
class FinishedRun:
    """What is known of a run before any histogram is read.

    Attributes:
        name: of the results folder; the label ``run``.
        created: when it was begun, ISO 8601.
        folder: where it lies.
    """

    name: str
    created: str
    targets: tuple[Target, ...]
    folder: ResultsFolder

    @property
    def start_unix_s(self) -> float:
        return min(target.windows[0].start_ms for target in self.targets) / 1e3

    @property
    def end_unix_s(self) -> float:
        return max(target.windows[-1].ticks_ms[-1] for target in self.targets) / 1e3


def run_name(folder: ResultsFolder) -> str:
    """Of the folder, in UTF-8, which not every name of a file is."""
    return os.fsencode(folder.path.resolve().name).decode("utf-8", "replace")


def read_run(folder: ResultsFolder) -> FinishedRun:
    """Its finished trials, VALID or not, each on the clock.

    Raises:
        ResultsError: the folder is damaged or none, holds no trial, or an older infersweep has
            measured it, which kept no times of windows.
    """
    manifest, trials = folder.read_manifest(), folder.read_trials()
    name = run_name(folder)
    if not trials:
        raise ResultsError(
            f"{folder.path} holds no finished trial", hint="Let the run go on, then repeat this."
        )
    windows: dict[tuple[str, str], list[MeasuredWindow]] = {}
    for trial in trials:
        windows.setdefault((trial.backend, trial.scenario), []).append(_on_the_clock(trial, folder))
    settings = manifest.settings
    return FinishedRun(
        name,
        manifest.created,
        tuple(
            Target(
                dict(zip(LOAD, (name, backend, settings.model, scenario), strict=True)),
                _in_order(own),
                settings.slo_ns,
                bounds_with(CLIENT_NS, settings.slo_ns),
            )
            for (backend, scenario), own in windows.items()
        ),
        folder,
    )


def _on_the_clock(trial: Trial, folder: ResultsFolder) -> MeasuredWindow:
    if trial.window_started_unix_s is None:
        raise ResultsError(
            f"{folder.path} was measured by an older infersweep, which did not keep when a window "
            f"began (trial {trial.id})",
            hint="Measure it again; its report can still be made.",
        )
    start_ms = round(trial.window_started_unix_s * 1e3)
    seconds = len(trial.completed)
    ticks = [start_ms + 1000 * second for second in range(1, seconds)]
    earliest = (ticks[-1] if ticks else start_ms) + LEAST_GAP_MS
    end = max(start_ms + round(trial.window_s * 1e3), earliest)
    return MeasuredWindow(trial, start_ms, (*ticks, end), folder)


def _in_order(windows: list[MeasuredWindow]) -> tuple[MeasuredWindow, ...]:
    ordered = sorted(windows, key=lambda window: window.start_ms)
    for before, after in pairwise(ordered):
        if after.start_ms < before.ticks_ms[-1] + LEAST_GAP_MS:
            raise ResultsError(
                f"by their times, trials {before.trial.id} and {after.trial.id} of "
                f"{before.folder.path} overlap",
                hint="The clock was set back during this run; measure it again.",
            )
    return tuple(ordered)


def _total(encoded: str | None) -> int:
    return 0 if encoded is None else int(HdrHistogram.decode(encoded).total_count)
