"""What a search knows, from the trials in its folder and from nothing else. Pure.

So whatever was measured before a kill counts, and the answer can be derived again at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from loadtest.analysis import samples_of
from loadtest.objective import Evidence, Objectives, Percentile, parse_objectives
from loadtest.results import Histograms, Settings, Trial
from loadtest.slo.bracket import MANY, ONE, Windows, bare_misses, scope_of
from loadtest.slo.judgement import Judgement, judge_probe
from loadtest.slo.search import Probe, Search
from serving.errors import LoadError

CLOSED = "closed"


@dataclass(frozen=True)
class Judged:
    seen: Evidence
    judgement: Judgement


@dataclass(frozen=True)
class State:
    """Attributes: ``closed`` loops by their users; ``probes`` in the order they ran."""

    objectives: Objectives
    windows: Windows
    closed: Mapping[float, Evidence]
    probes: tuple[Judged, ...]

    @property
    def bracketed(self) -> bool:
        return ONE in self.closed and MANY in self.closed

    @cached_property
    def search(self) -> Search:
        """Once both closed loops are measured.

        Raises:
            LoadError: they gave no right answer, or the objectives cannot be measured here.
        """
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
        path = (Probe(one.seen.trial.level, one.judgement.verdict) for one in self.probes)
        return Search(scope, tuple(path))

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


def state_of(settings: Settings, seen: Sequence[Evidence]) -> State:
    """Of a folder whose settings have objectives; ``seen`` are its trials in their order.

    Raises:
        UsageError: the objectives cannot be read.
    """
    objectives = parse_objectives(settings.objectives)
    return State(
        objectives,
        Windows(settings.duration_s, settings.limit_s),
        {one.trial.level: one for one in seen if one.trial.scenario == CLOSED},
        tuple(
            Judged(one, judge_probe(objectives, one))
            for one in seen
            if one.trial.scenario != CLOSED
        ),
    )


def _answers_per_s(trial: Trial) -> float:
    return trial.outcomes["ok"] / trial.window_s
