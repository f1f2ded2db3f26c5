"""Every run below some folders, in groups of what may be compared."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from statistics import median
from typing import NamedTuple

from loadtest.analysis import PERCENTILES, point_of
from loadtest.folder import ResultsFolder
from loadtest.highest import comparable, levels_of, progress_of, trials_at
from loadtest.likeness import Conditions, conditions, conditions_of_backend
from loadtest.measures import (
    Measure,
    UnmeasuredError,
    counted,
    decoding,
    samples_reader,
)
from loadtest.results import Manifest, Point, Quantile, Summary, Trial, Verdict
from loadtest.summary import searches_of
from serving.errors import InfersweepError, ResultsError

_DAMAGED = (InfersweepError, OSError, ValueError, TypeError, KeyError)
"""What reading a folder may end in that somebody has written over."""


@dataclass(frozen=True)
class Found:
    """One figure of a run.

    Attributes:
        series: the backend, and what served where that is known.
        value: ``None`` where there is none.
        low, high: the lowest and highest repeat; of a percentile its 99% bounds.
        why: what is to be said of the value, or why there is none.
    """

    backend: str
    series: Conditions
    level: float
    value: float | None
    low: float | None
    high: float | None
    why: str
    verdict: Verdict


@dataclass(frozen=True)
class PastRun:
    path: Path
    created: datetime
    manifest: Manifest
    complete: bool
    found: tuple[Found, ...]

    @property
    def commit(self) -> str:
        """Of infersweep; outside a checkout its version."""
        return self.manifest.commit or f"v{self.manifest.infersweep_version}"


@dataclass(frozen=True)
class Group:
    """Runs of one model under equal conditions, the oldest first."""

    model: str
    conditions: Conditions
    runs: tuple[PastRun, ...]

    @property
    def series(self) -> dict[tuple[str, float, tuple[str, ...]], list[tuple[int, Found]]]:
        """Figures that may be joined by a line, each with the place of its run."""
        lines: dict[tuple[str, float, tuple[str, ...]], list[tuple[int, Found]]] = {}
        for place, run in enumerate(self.runs):
            for one in run.found:
                key = (one.backend, one.level, tuple(one.series.values()))
                lines.setdefault(key, []).append((place, one))
        return dict(sorted(lines.items()))


@dataclass(frozen=True)
class History:
    """Attributes: ``unreadable`` maps folders to why they could not be read."""

    measure: Measure
    groups: tuple[Group, ...]
    unreadable: Mapping[Path, str]


def read_history(folders: Sequence[Path], measure: Measure) -> History:
    """Raises ResultsError for a folder that does not exist, or one without any results."""
    runs: dict[Path, PastRun] = {}
    unreadable: dict[Path, str] = {}
    seen: set[Path] = set()
    for folder in folders:
        if not folder.is_dir():
            raise ResultsError(
                f"{folder} is no folder", hint="Name one that holds results of infersweep."
            )
        for path in _results_below(folder, unreadable):
            if path.resolve() in seen:
                continue
            seen.add(path.resolve())
            try:
                runs[path] = _read(path, measure)
            except _DAMAGED as error:
                unreadable[path] = error.what if isinstance(error, InfersweepError) else str(error)
    if not runs and not unreadable:
        raise ResultsError(
            f"there are no results below {', '.join(map(str, folders))}",
            hint="Measure first: infersweep compare.",
        )
    return History(measure, tuple(_grouped(runs.values())), unreadable)


def _results_below(folder: Path, unreadable: dict[Path, str]) -> Iterator[Path]:
    def note(error: OSError) -> None:
        unreadable[Path(error.filename or folder)] = str(error)

    for path, below, files in os.walk(folder, onerror=note):
        if {"manifest.json", "trials.jsonl"} & set(files):
            # What lies in a results folder is its own.
            below.clear()
            yield Path(path)


def _grouped(runs: Iterable[PastRun]) -> Iterator[Group]:
    groups: dict[tuple[str, tuple[tuple[str, str], ...]], list[PastRun]] = {}
    for run in sorted(runs, key=lambda run: (run.created, run.path)):
        alike = tuple(conditions(run.manifest).items())
        groups.setdefault((run.manifest.settings.model, alike), []).append(run)
    for (model, alike), own in groups.items():
        yield Group(model, dict(alike), tuple(own))


def _read(path: Path, measure: Measure) -> PastRun:
    folder = ResultsFolder(path)
    manifest, trials = folder.read_manifest(), folder.read_trials()
    if not trials:
        raise ResultsError("it holds no finished trial", hint="Resume it.")
    records = folder.read_backends()
    settings = manifest.settings
    searches = searches_of(settings, trials, folder.read_histograms)
    counted_ones = comparable(settings, trials, searches)
    points = _points(folder, counted_ones)
    found = []
    for backend in settings.backends:
        record = records.get(backend)
        for level in levels_of(settings):
            at = trials_at(counted_ones, backend, level)
            if at:
                series = conditions_of_backend(record)
                found.append(_found(measure, level, at, series, folder, points))
    return PastRun(
        path,
        datetime.fromisoformat(manifest.created).astimezone(),
        manifest,
        progress_of(settings, trials, records, searches).complete,
        tuple(found),
    )


PointReader = Callable[[str, float], Point]


def _points(folder: ResultsFolder, trials: Sequence[Trial]) -> PointReader:
    """From the summary, or made again where that is older than its trials or damaged."""

    @cache
    def summary() -> Summary | None:
        try:
            found = folder.read_summary()
        except ResultsError:
            return None
        return found if found.finished_trials == len(trials) else None

    def point(backend: str, level: float) -> Point:
        known = summary()
        if known is not None:
            for own in known.backends:
                for one in own.points:
                    if own.label == backend and one.level == level:
                        return one
        at = trials_at(trials, backend, level)
        with decoding(at[0].id):
            return point_of(at, folder.read_histograms)

    return point


def _found(
    measure: Measure,
    level: float,
    trials: Sequence[Trial],
    series: Conditions,
    folder: ResultsFolder,
    points: PointReader,
) -> Found:
    """As in a report: from the VALID repeats, or from all where none is VALID."""
    valid, is_valid = counted(trials)
    backend = trials[0].backend
    verdict: Verdict = "VALID" if is_valid else "INVALID"
    if measure.name in PERCENTILES:
        value = _percentile(points(backend, level), measure.name)
    else:
        samples = samples_reader(folder.read_histograms)
        try:
            readings = [measure.of(trial, samples) for trial in valid or trials]
        except UnmeasuredError as error:
            value = _Value(why=str(error))
        else:
            values = [reading.value for reading in readings]
            value = _Value(median(values), min(values), max(values))
            if basis := "; ".join(dict.fromkeys(r.basis for r in readings if r.basis)):
                series = {**series, "of": basis}
    return Found(backend, series, level, *value, verdict)


class _Value(NamedTuple):
    value: float | None = None
    low: float | None = None
    high: float | None = None
    why: str = ""


def _percentile(point: Point, name: str) -> _Value:
    found: Quantile | None = getattr(point.response_time_ms, name.replace(".", "_"))
    if found is None:
        return _Value(why="too few samples")
    why = "at least: a time limit was reached" if found.at_least else ""
    return _Value(found.value_ms, found.low_ms, found.high_ms, why)
