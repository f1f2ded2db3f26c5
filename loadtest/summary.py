"""``summary.json`` from the files of a results folder; may be made again at any time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache

from loadtest.analysis import HistogramReader, point_of
from loadtest.explained import Start
from loadtest.folder import ResultsFolder
from loadtest.likeness import unlike_servers
from loadtest.ranking import rank_points, rank_searches
from loadtest.results import (
    BackendRecord,
    BackendSummary,
    Manifest,
    Point,
    Settings,
    Summary,
    Trial,
)
from loadtest.searched import SearchRecord
from loadtest.shapes import best_trials, shapes_of
from loadtest.slo.record import record_of
from loadtest.slo.state import CLOSED, evidence_of, state_of
from serving.backends.registry import resolve

_NO_ANSWERS = "it does not compute answers: the harness's own ceiling"


def write_summary(folder: ResultsFolder) -> Summary:
    """Derive, write and return the summary.

    Raises:
        ResultsError: the folder is damaged or is none.
    """
    summary = summarise(
        folder.read_manifest(),
        folder.read_backends(),
        folder.read_trials(),
        folder.read_histograms,
        folder.read_configuration,
        folder.read_starts(),
    )
    folder.write_summary(summary)
    return summary


def summarise(
    manifest: Manifest,
    records: Mapping[str, BackendRecord],
    trials: Sequence[Trial],
    read: HistogramReader,
    configuration: Callable[[str], str | None] = lambda _model: None,
    starts: Sequence[Start] = (),
) -> Summary:
    """Everything that the report shows, from what the run wrote.

    Of a tuning that is the default of each backend; its other settings have a page of their own.
    ``configuration`` gives the served ``config.pbtxt`` of a model, where there is one.
    """
    settings, read = manifest.settings, cache(read)
    own = [trial for trial in trials if trial.backend in settings.backends]
    searches = searches_of(settings, own, read)
    served = configuration(settings.model)
    backends = tuple(
        _shaped(
            _backend(
                label,
                records.get(label),
                _points(settings, trials, label, read),
                served,
                tuple(start for start in starts if start.backend == label),
            ),
            trials,
            searches,
            read,
        )
        for label in settings.backends
    )
    out = dict(_not_ranked(settings, records))
    if settings.objectives:
        ranking = rank_searches(backends, searches, out, settings.batch_size)
        complete = _searched_all(backends, searches, settings)
        planned = len(trials)
    else:
        ranking = rank_points(backends, out, settings.level_name)
        complete = _measured_all(backends, trials, settings)
        planned = settings.planned_trials
    return Summary(
        manifest=manifest,
        complete=complete,
        planned_trials=planned,
        finished_trials=len(trials),
        backends=backends,
        searches=searches,
        ranking=ranking,
    )


def searches_of(
    settings: Settings, trials: Sequence[Trial], read: HistogramReader
) -> tuple[SearchRecord, ...]:
    """Every search that was begun, of all backends, in the order of their repeats.

    None where the settings have no objectives.
    """
    if not settings.objectives:
        return ()
    seen = [evidence_of(trial, read(trial.id)) for trial in trials]
    begun = dict.fromkeys((trial.repeat, trial.backend) for trial in trials)
    return tuple(
        record_of(state_of(settings, seen, backend, repeat))
        for repeat, backend in sorted(begun, key=lambda one: one[0])
    )


def _shaped(
    backend: BackendSummary,
    trials: Sequence[Trial],
    searches: Sequence[SearchRecord],
    read: HistogramReader,
) -> BackendSummary:
    """With the shapes of its response times at its best."""
    own = [trial for trial in trials if trial.backend == backend.label]
    searched = [one for one in searches if one.backend == backend.label]
    spectrum, heatmap = shapes_of(best_trials(own, backend.points, searched), read)
    return backend.model_copy(update={"spectrum": spectrum, "heatmap": heatmap})


def _backend(
    label: str,
    record: BackendRecord | None,
    points: tuple[Point, ...],
    served: str | None,
    starts: tuple[Start, ...],
) -> BackendSummary:
    return BackendSummary(
        label=label,
        facts=record.facts if record else {},
        warnings=record.warnings if record else (),
        parity=record.parity if record else None,
        start_s=record.start_s if record else None,
        excluded=record.excluded if record else None,
        starts=starts,
        points=points,
        # A remote server has a configuration of its own.
        configuration=served if record and record.start_s is not None else None,
    )


def _points(
    settings: Settings, trials: Sequence[Trial], label: str, read: HistogramReader
) -> tuple[Point, ...]:
    """A search finds its levels itself; the closed loops in front of it are no points."""
    own = [trial for trial in trials if trial.backend == label]
    levels: Sequence[float] = settings.levels
    if settings.objectives:
        own = [trial for trial in own if trial.scenario != CLOSED]
        levels = sorted({trial.level for trial in own})
    return tuple(
        point_of(at, read)
        for level in levels
        if (at := [trial for trial in own if trial.level == level])
    )


def _not_ranked(
    settings: Settings, records: Mapping[str, BackendRecord]
) -> Iterator[tuple[str, str]]:
    if not settings.rank_unlike:
        yield from unlike_servers(settings.backends, records).items()
    for label in settings.backends:
        if not resolve(label)[0].answers:
            yield label, _NO_ANSWERS


def _measured_all(
    backends: Sequence[BackendSummary], trials: Sequence[Trial], settings: Settings
) -> bool:
    each = len(settings.levels) * settings.repeats
    return all(
        backend.excluded or sum(trial.backend == backend.label for trial in trials) >= each
        for backend in backends
    )


def _searched_all(
    backends: Sequence[BackendSummary], searches: Sequence[SearchRecord], settings: Settings
) -> bool:
    return all(
        backend.excluded
        or is_searched([one for one in searches if one.backend == backend.label], settings.repeats)
        for backend in backends
    )


def is_searched(own: Sequence[SearchRecord], repeats: int) -> bool:
    """Whether one backend needs no more searches: what is not reachable is asked for once."""
    if any(not one.complete for one in own):
        return False
    return len(own) >= repeats or any(one.answer.kind == "not reachable" for one in own)
