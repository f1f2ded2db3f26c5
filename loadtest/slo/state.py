"""What searches know, from the trials in their folder and from nothing else. Pure.

So whatever was measured before a kill counts, and the answers can be derived again at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from loadtest.analysis import samples_of
from loadtest.objective import Evidence, Objectives, Percentile, parse_objectives
from loadtest.results import Histograms, Settings, Trial
from loadtest.slo.bracket import MANY, ONE, Windows, bare_misses, scope_of
from loadtest.slo.judgement import Judgement, judge_probe
from loadtest.slo.search import FIRST_STEP, NEAR_STEP, Answer, Probe, Scope, Search
from serving.errors import LoadError

CLOSED = "closed"


@dataclass(frozen=True)
class Judged:
    seen: Evidence
    judgement: Judgement


@dataclass(frozen=True)
class State:
    """One search, of one backend on one server start.

    Attributes:
        closed: loops in front of the backend's first search, by their users.
        probes: in the order they ran.
        former: the answer of the backend's first search, where this is a later one.
    """

    backend: str
    repeat: int
    seed: int
    objectives: Objectives
    windows: Windows
    closed: Mapping[float, Evidence]
    probes: tuple[Judged, ...]
    former: Answer | None = None

    @property
    def bracketed(self) -> bool:
        return ONE in self.closed and MANY in self.closed

    @cached_property
    def search(self) -> Search:
        """Once both closed loops are measured.

        Raises:
            LoadError: they gave no right answer, or the objectives cannot be measured here.
        """
        path = (Probe(one.seen.trial.level, one.judgement.verdict) for one in self.probes)
        return Search(self._scope(), tuple(path))

    def _scope(self) -> Scope:
        bare, many = self.closed[ONE], self.closed[MANY]
        if not bare.samples.count:
            why = "; ".join(bare.trial.reasons)
            raise LoadError(
                f"one request at a time got no answer: {why}", hint="Is the server well?"
            )
        self._require_measurable(bare)
        scope = scope_of(
            self.objectives,
            bare.samples,
            max(_answers_per_s(bare.trial), _answers_per_s(many.trial)),
            bare.trial.ceiling_rps,
            self.windows,
            hopeless=self._is_hopeless(bare),
        )
        if self.former is None or self.former.met_rps is None:
            return scope
        # Rates are found in steps, and where a search begins it tends to stay. Were all repeats to
        # begin at the former answer, that would look like agreement; so each has its own place.
        shift = Random(f"{self.seed} {self.backend} {self.repeat}").uniform(-0.5, 0.5)
        return replace(
            scope, first_rps=self.former.met_rps * FIRST_STEP**shift, first_step=NEAR_STEP
        )

    def _require_measurable(self, bare: Evidence) -> None:
        for found in self.objectives.hold(bare):
            if found.state == "unknown" and not isinstance(found.objective, Percentile):
                raise LoadError(
                    f"{found.objective.text} cannot be held against anything: {found.told}",
                    hint="Leave it out, or search on a machine that can measure it.",
                )

    def _is_hopeless(self, bare: Evidence) -> bool:
        """Whether no lower rate can help; not to be concluded from a window that is INVALID."""
        if bare.trial.verdict == "INVALID":
            return False
        beside = judge_probe(self.objectives, bare).findings
        return any(bare_misses(one, bare.samples) for one in self.objectives.percentiles) or any(
            found.state == "missed" and found.objective.name == "memory" for found in beside
        )


def evidence_of(trial: Trial, histograms: Histograms) -> Evidence:
    return Evidence(trial, samples_of(histograms.response_time, trial.outcomes["not_sent"]))


def windows_of(settings: Settings) -> Windows:
    return Windows(settings.duration_s, settings.limit_s)


def state_of(settings: Settings, seen: Sequence[Evidence], backend: str, repeat: int = 1) -> State:
    """Of one search in a folder whose settings have objectives; ``seen`` are all its trials.

    Raises:
        UsageError: the objectives cannot be read.
        LoadError: the backend's first search is over, and says that there can be none.
    """
    objectives = parse_objectives(settings.objectives)
    own = [one for one in seen if one.trial.backend == backend]
    first = State(
        backend,
        1,
        settings.seed,
        objectives,
        windows_of(settings),
        {one.trial.level: one for one in own if one.trial.scenario == CLOSED},
        _judged(objectives, own, 1),
    )
    if repeat == 1:
        return first
    former = first.search.answer if first.bracketed else None
    return replace(first, repeat=repeat, probes=_judged(objectives, own, repeat), former=former)


def _judged(objectives: Objectives, own: Sequence[Evidence], repeat: int) -> tuple[Judged, ...]:
    return tuple(
        Judged(one, judge_probe(objectives, one))
        for one in own
        if one.trial.scenario != CLOSED and one.trial.repeat == repeat
    )


def _answers_per_s(trial: Trial) -> float:
    return trial.outcomes["ok"] / trial.window_s
