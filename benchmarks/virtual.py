"""Whole comparisons on queues in virtual time, as ``infersweep compare`` makes them.

Which window comes next, what it says of its rate, what a search answers and who wins is decided by
``loadtest`` itself; server and clock alone are made up (``benchmarks.queues``).
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np

from benchmarks.queues import (
    PlainSamples,
    Queue,
    Window,
    closed_window,
    open_window,
    plain_trial,
)
from loadtest.analysis import HistogramReader, point_of
from loadtest.objective import Evidence, parse_objectives
from loadtest.ranking import rank_points, rank_searches
from loadtest.results import BackendSummary, Histograms, Point, Ranking, Settings, Trial
from loadtest.searched import SearchRecord
from loadtest.slo.bracket import MANY, ONE
from loadtest.slo.judgement import judge_probe
from loadtest.slo.probing import closed_settings, probe_settings, stop_rule
from loadtest.slo.record import record_of
from loadtest.slo.state import Judged, evidence_of, state_of
from loadtest.summary import searches_of, summarise
from loadtest.trials import PlannedTrial, plan_visits, trial_of
from tests import sample_trials

FIRST, SECOND = "onnxruntime", "triton"
OBJECTIVE = "p99<=20ms"


@dataclass(frozen=True)
class Kept:
    """One window, as a results folder has it; without histograms where they were spared."""

    trial: Trial
    evidence: Evidence
    histograms: Histograms | None


@dataclass
class Side:
    """All windows of one backend, and its searches where it was searched."""

    label: str
    kept: list[Kept] = field(default_factory=list)
    searches: list[SearchRecord] = field(default_factory=list)


def _keep(planned: PlannedTrial, window: Window, settings: Settings, *, plain: bool) -> Kept:
    """What a window becomes; ``plain`` spares the histograms."""
    if plain:
        changes = {
            "id": planned.id,
            "backend": planned.backend,
            "scenario": settings.scenario,
            "repeat": planned.repeat,
            "probe": planned.probe,
        }
        trial = plain_trial(_template()[0], window, changes)
        return Kept(trial, Evidence(trial, PlainSamples(*window.inside())), None)
    trial, histograms = trial_of(
        planned,
        window.output(),
        settings,
        client_cpus=1,
        server_cpus=1,
        server_ended=None,
        ceiling_rps=None,
    )
    return Kept(trial, evidence_of(trial, histograms), histograms)


@cache
def _template() -> tuple[Trial, Point]:
    """VALID ones, of which all that is read is replaced."""
    trial, histograms = sample_trials.trial(FIRST, 1, 1, [1_000_000] * 500)
    return trial, point_of([trial], lambda _: histograms)


def search_settings(seed: int, objective: str = OBJECTIVE, repeats: int = 5) -> Settings:
    """Those of ``compare --objective``."""
    return sample_trials.settings(
        backends=(FIRST, SECOND),
        scenario="server",
        level_name="requests/s",
        levels=(),
        duration_s=5.0,
        limit_s=60.0,
        repeats=repeats,
        seed=seed,
        objectives=(objective,),
    )


def sweep_settings(seed: int, repeats: int = 3) -> Settings:
    """Those of ``compare``."""
    return sample_trials.settings(
        backends=(FIRST, SECOND), levels=(1, 2, 4, 8), duration_s=4.0, repeats=repeats, seed=seed
    )


def search_side(
    settings: Settings, label: str, queue: Queue, rng: np.random.Generator, *, plain: bool
) -> Side:
    """A search per repeat, each on a fresh start, as ``loadtest.contest`` runs them."""
    side = Side(label)
    objectives = parse_objectives(settings.objectives)
    for repeat in range(1, settings.repeats + 1):
        started = queue.started(rng)
        if repeat == 1:
            for users in (ONE, MANY):
                own = closed_settings(settings)
                window = closed_window(started, int(users), own.duration_s)
                side.kept.append(_keep(PlannedTrial(label, users, 1, 0), window, own, plain=plain))
        seen = [one.evidence for one in side.kept]
        state = state_of(settings, seen, label, repeat)
        if state.former is not None and state.former.kind == "not reachable":
            break
        judged: list[Judged] = []
        search = state.search
        while (rate_rps := search.next_rps) is not None:
            number = len(judged) + 1
            own = probe_settings(settings, state, rate_rps, number)
            window = open_window(started, own, rate_rps, stop_rule(objectives), told=not plain)
            planned = PlannedTrial(label, rate_rps, repeat, number)
            kept = _keep(planned, window, own, plain=plain)
            judged.append(Judged(kept.evidence, judge_probe(objectives, kept.evidence)))
            side.kept.append(kept)
            search = search.told(judged[-1].judgement.verdict)
        side.searches.append(record_of(replace(state, probes=tuple(judged))))
    return side


def sweep_side(
    settings: Settings, label: str, queue: Queue, rng: np.random.Generator, *, plain: bool
) -> Side:
    """All levels on each fresh start, as ``loadtest.sweep`` runs them."""
    side = Side(label)
    for visit in plan_visits(settings):
        if visit.backend == label:
            started = queue.started(rng)
            for planned in visit.trials:
                window = closed_window(started, int(planned.level), settings.duration_s)
                side.kept.append(_keep(planned, window, settings, plain=plain))
    return side


def ranked(settings: Settings, sides: Sequence[Side]) -> Ranking:
    """As ``summarise`` does, but without points that no search's ranking looks at.

    Everything is derived from trials and histograms; from counts alone where those were spared.
    """
    if any(one.histograms is None for side in sides for one in side.kept):
        return _ranked_plainly(settings, sides)
    if not settings.objectives:
        return summarised(settings, sides)
    searches = tuple(searches_of(settings, *_folder(sides)))
    return rank_searches([_summary(side, settings) for side in sides], searches, {})


def summarised(settings: Settings, sides: Sequence[Side]) -> Ranking:
    """By the whole of a results folder. No histogram may have been spared."""
    manifest = sample_trials.manifest().model_copy(update={"settings": settings})
    return summarise(manifest, {}, *_folder(sides)).ranking


def _folder(sides: Sequence[Side]) -> tuple[Sequence[Trial], HistogramReader]:
    kept = [one for side in sides for one in side.kept]
    histograms = {one.trial.id: one.histograms for one in kept if one.histograms is not None}
    return [one.trial for one in kept], histograms.__getitem__


def _ranked_plainly(settings: Settings, sides: Sequence[Side]) -> Ranking:
    backends = [_summary(side, settings) for side in sides]
    if settings.objectives:
        return rank_searches(backends, [one for side in sides for one in side.searches], {})
    return rank_points(backends, {})


def _summary(side: Side, settings: Settings) -> BackendSummary:
    points = tuple(_point(side, level) for level in settings.levels)
    return BackendSummary(
        label=side.label,
        facts={},
        warnings=(),
        parity=None,
        start_s=None,
        excluded=None,
        points=points,
    )


def _point(side: Side, level: float) -> Point:
    """Of a VALID level, what the ranking reads."""
    trials = [one.trial for one in side.kept if one.trial.level == level]
    rates = tuple(trial.outcomes["ok"] / trial.window_s for trial in trials)
    return _template()[1].model_copy(
        update={
            "level": level,
            "inferences_per_s": statistics.median(rates),
            "inferences_per_s_range": (min(rates), max(rates)),
            "inferences_per_s_repeats": rates,
        }
    )


def winner(ranking: Ranking) -> str | None:
    """``None`` where there is no significant difference.

    Raises:
        ValueError: not both sides could be ranked with enough repeats, so there is no verdict.
    """
    if len(ranking.rows) == 2:
        against = ranking.rows[1].against_first
        if against is not None and against.verdict != "too few repeats":
            return ranking.winner
    raise ValueError(ranking.sentence)
