"""A search on a real server that stays up for all probes, each a window of Poisson arrivals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from loadtest.folder import ResultsFolder
from loadtest.objective import Evidence, Objectives, parse_objectives
from loadtest.resources.sampler import Sampler
from loadtest.results import Settings
from loadtest.rig import Ready, Rig
from loadtest.runner import generate
from loadtest.slo.bracket import CLOSED_S, MANY, ONE
from loadtest.slo.measurable import require_measurable, require_visible
from loadtest.slo.page import write_page
from loadtest.slo.record import FILE, ProbeRecord, SearchRecord, record_of
from loadtest.slo.search import MOST_PROBES
from loadtest.slo.state import CLOSED, State, evidence_of, state_of
from loadtest.trial import StopRule
from loadtest.trials import PlannedTrial
from serving.errors import ParityError


class SearchListener(Protocol):
    """Is told what was found, besides what a ``RigListener`` is told."""

    def probe_done(self, probe: ProbeRecord, most: int) -> None: ...


def derive(folder: ResultsFolder, seen: dict[str, Evidence]) -> tuple[SearchRecord, State]:
    """Make ``search.json`` and ``search.html`` from the trials on disk.

    ``seen`` keeps what was read of each trial, for the next time.

    Raises:
        InfersweepError: the folder is damaged, or its trials allow no search.
    """
    for trial in folder.read_trials():
        if trial.id not in seen:
            seen[trial.id] = evidence_of(trial, folder.read_histograms(trial.id))
    manifest = folder.read_manifest()
    state = state_of(manifest.settings, list(seen.values()))
    record = record_of(manifest, state)
    folder.write_derived(FILE, record)
    write_page(folder, record)
    return record, state


@dataclass
class ObjectiveSearch:
    """The search that the settings of a rig describe, from wherever it stopped."""

    rig: Rig
    listener: SearchListener
    _seen: dict[str, Evidence] = field(default_factory=dict)

    def run(self) -> SearchRecord:
        """Probe until there is an answer. Every probe is on disk before the next begins.

        Raises:
            UsageError: the objectives cannot be held against this server.
            InfersweepError: it cannot be launched, its answers are wrong, the generator failed, or
                what is asked for cannot be measured here.
        """
        settings, rig = self.rig.settings, self.rig
        objectives = parse_objectives(settings.objectives)
        require_measurable(objectives, settings.backends[0], settings.timeout_s)
        rig.open()
        require_visible(objectives, rig.plan(settings.backends[0]))
        record, state = self._note()
        with Sampler(rig.folder.resources) as sampler:
            if not record.complete:
                rig.measure_idle(sampler)
            while not record.complete:
                with rig.ready(settings.backends[0], sampler) as ready:
                    if ready is None:
                        raise ParityError(
                            f"{settings.backends[0]} answers wrongly, so it is not loaded",
                            hint="`infersweep check` shows the differences.",
                        )
                    record = self._probe_on(ready, state, sampler)
                _, state = self._note()
        return record

    def _note(self) -> tuple[SearchRecord, State]:
        return derive(self.rig.folder, self._seen)

    def _probe_on(self, ready: Ready, state: State, sampler: Sampler) -> SearchRecord:
        """As far as this server lives."""
        missing = [users for users in (ONE, MANY) if users not in state.closed]
        if missing:
            self._close_loops(ready, missing, sampler)
        record, state = self._note()
        while not record.complete and ready.server.ended is None:
            rate_rps = state.search.next_rps
            assert rate_rps is not None
            self._probe(ready, rate_rps, state, sampler)
            record, state = self._note()
            self.listener.probe_done(record.probes[-1], MOST_PROBES)
        return record

    def _close_loops(self, ready: Ready, users: Sequence[float], sampler: Sampler) -> None:
        """How fast the server is with one request at a time, and about how much it can do."""
        rig = self.rig
        length_s = min(CLOSED_S, rig.settings.duration_s)
        settings = _with(rig.settings, scenario=CLOSED, duration_s=length_s)
        name = f"{PlannedTrial(ready.label, users[0], 0).id}-closed"
        rig.listener.stage(f"{ready.label}: how much it can do, in a closed loop")
        spec = rig.spec(ready, tuple(users), name, settings)
        outputs = generate(spec, rig.fleet, rig.log(name))
        for level, output in zip(users, outputs, strict=True):
            rig.keep(PlannedTrial(ready.label, level, 0), output, ready, sampler, settings)

    def _probe(self, ready: Ready, rate_rps: float, state: State, sampler: Sampler) -> None:
        rig, number = self.rig, len(state.probes) + 1
        length_s = state.windows.length_s(rate_rps, state.objectives.needed)
        # Another seed, so that a rate that is probed again meets other arrivals.
        settings = _with(rig.settings, duration_s=length_s, seed=rig.settings.seed + number)
        planned = PlannedTrial(ready.label, rate_rps, number)
        rig.listener.stage(f"probe {number}: {rate_rps:,g} requests/s for {length_s:.0f} s at most")
        spec = rig.spec(ready, (rate_rps,), planned.id, settings).model_copy(
            update={"stop": _stop_rule(state.objectives)}
        )
        for output in generate(spec, rig.fleet, rig.log(planned.id)):
            rig.keep(planned, output, ready, sampler, settings)


def _with(settings: Settings, **changes: object) -> Settings:
    return settings.model_copy(update=changes)


def _stop_rule(objectives: Objectives) -> StopRule:
    limits = tuple((one.quantile, one.limit_ns) for one in objectives.percentiles)
    return StopRule(percentiles=limits, failures=objectives.error_share)
