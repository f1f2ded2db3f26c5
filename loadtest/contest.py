"""Objective searches on real servers: one, or several backends in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from loadtest.objective import Evidence, parse_objectives
from loadtest.resources.sampler import Sampler
from loadtest.rig import Arm, Ready, Rig, RigListener
from loadtest.runner import generate
from loadtest.searched import ProbeRecord, SearchRecord
from loadtest.slo.bracket import MANY, ONE
from loadtest.slo.measurable import require_measurable, require_visible
from loadtest.slo.probing import closed_settings, probe_settings, stop_rule
from loadtest.slo.record import record_of
from loadtest.slo.state import State, evidence_of, state_of
from loadtest.trials import PlannedTrial
from loadtest.window import require_right
from serving.errors import InfersweepError


class SearchListener(RigListener, Protocol):
    """Is told what was found, besides what a ``RigListener`` is told."""

    def probe_done(self, arm: str, repeat: int, probe: ProbeRecord) -> None: ...

    def search_done(self, record: SearchRecord) -> None: ...


@dataclass(frozen=True)
class Race:
    """A search that need not be finished.

    Attributes:
        first_rps: where it begins; the arm's own guess where ``None``.
        enough: asked after every window whether the rest is not worth measuring.
    """

    first_rps: float | None = None
    enough: Callable[[State], bool] = lambda _state: False


WHOLE = Race()


@dataclass
class Prober:
    """Searches on one arm at a time; what is on disk already is not measured again."""

    rig: Rig
    sampler: Sampler
    listener: SearchListener
    _seen: dict[str, Evidence] = field(default_factory=dict)

    def state(self, arm: Arm, repeat: int) -> State:
        """From the trials on disk."""
        for trial in self.rig.folder.read_trials():
            if trial.id not in self._seen:
                histograms = self.rig.folder.read_histograms(trial.id)
                self._seen[trial.id] = evidence_of(trial, histograms)
        return state_of(self.rig.settings, list(self._seen.values()), arm.name, repeat)

    def search(self, arm: Arm, repeat: int = 1, race: Race = WHOLE) -> SearchRecord:
        """Probe until there is an answer. Every probe is on disk before the next begins.

        Raises:
            ParityError: the answers are wrong, so nothing was measured.
            LoadError: the generator failed, or what is asked for cannot be measured here.
            InfersweepError: the server cannot be launched, or died before a request.
        """
        state = self.state(arm, repeat)
        while not _over(state, race):
            with self.rig.ready(arm, self.sampler) as ready:
                state = self._probe_on(require_right(ready, arm.name), state, race)
        record = record_of(state)
        self.listener.search_done(record)
        return record

    def _probe_on(self, ready: Ready, state: State, race: Race) -> State:
        """As far as this server lives."""
        missing = [users for users in (ONE, MANY) if users not in state.closed]
        if missing:
            self._close_loops(ready, missing)
            state = self.state(ready.arm, state.repeat)
        while not _over(state, race) and ready.server.ended is None:
            rate_rps = state.search.next_rps
            assert rate_rps is not None
            if race.first_rps is not None and not state.probes:
                rate_rps = state.search.scope.within(race.first_rps)
            self._probe(ready, rate_rps, state)
            state = self.state(ready.arm, state.repeat)
            self.listener.probe_done(ready.arm.name, state.repeat, record_of(state).probes[-1])
        return state

    def _close_loops(self, ready: Ready, users: Sequence[float]) -> None:
        """How fast the server is with one request at a time, and about how much it can do."""
        rig, name = self.rig, ready.arm.name
        settings = closed_settings(rig.settings)
        planned = [PlannedTrial(name, count, 1, 0) for count in users]
        rig.listener.stage(f"{name}: how much it can do, in a closed loop")
        spec = rig.spec(ready, tuple(users), planned[0].id, settings)
        outputs = generate(spec, rig.fleet, rig.log(planned[0].id))
        for one, output in zip(planned, outputs, strict=True):
            rig.keep(one, output, ready, self.sampler, settings)

    def _probe(self, ready: Ready, rate_rps: float, state: State) -> None:
        rig, number = self.rig, len(state.probes) + 1
        settings = probe_settings(rig.settings, state, rate_rps, number)
        planned = PlannedTrial(ready.arm.name, rate_rps, state.repeat, number)
        rig.listener.stage(
            f"{ready.arm.name}, probe {number}: {rate_rps:,g} requests/s "
            f"for {settings.duration_s:.0f} s at most"
        )
        spec = rig.spec(ready, (rate_rps,), planned.id, settings).model_copy(
            update={"stop": stop_rule(state.objectives)}
        )
        for output in generate(spec, rig.fleet, rig.log(planned.id)):
            rig.keep(planned, output, ready, self.sampler, settings)


@dataclass
class Contest:
    """A search per arm and repeat: each repeat visits every arm once, in a random order.

    A visit starts a fresh server, so what differs from one start to the next is in the repeats.
    """

    rig: Rig
    arms: Sequence[Arm]
    listener: SearchListener

    def run(self) -> None:
        """Measure what is missing. Everything measured before an exception stays on disk.

        An arm that cannot be searched is left out; where it is the only one, that is raised.

        Raises:
            InfersweepError: as ``Prober.search`` says.
        """
        self.rig.open()
        self._foresee()
        with Sampler(self.rig.folder.resources) as sampler:
            prober = Prober(self.rig, sampler, self.listener)
            idle_known = False
            for arm, repeat in self._visits():
                if not self._is_needed(prober, arm, repeat):
                    continue
                if not idle_known:
                    self.rig.measure_idle(sampler)
                    idle_known = True
                with self._leaving_out(arm):
                    prober.search(arm, repeat)
            if sampler.ended is not None:
                self.listener.warning(f"resources were not sampled to the end: {sampler.ended}")

    def _foresee(self) -> None:
        """Leave out what cannot be launched or held against the objectives."""
        objectives = parse_objectives(self.rig.settings.objectives)
        for arm in self.arms:
            with self._leaving_out(arm):
                require_measurable(objectives, arm.backend, self.rig.settings.timeout_s)
                require_visible(objectives, self.rig.plan(arm))

    def _visits(self) -> Iterator[tuple[Arm, int]]:
        """All, in the order they run; the same settings give the same order."""
        rng = Random(self.rig.settings.seed)
        for repeat in range(1, self.rig.settings.repeats + 1):
            for arm in rng.sample(self.arms, len(self.arms)):
                yield arm, repeat

    def _is_needed(self, prober: Prober, arm: Arm, repeat: int) -> bool:
        """Not when it is measured already, or one search has said that no rate is low enough."""
        record = self.rig.records.get(arm.name)
        if record and record.excluded:
            return False
        state = prober.state(arm, repeat)
        if state.former is not None and state.former.kind == "not reachable":
            return False
        return not _over(state, WHOLE)

    @contextmanager
    def _leaving_out(self, arm: Arm) -> Iterator[None]:
        try:
            yield
        except InfersweepError as error:
            if len(self.arms) == 1:
                raise
            record = self.rig.records.get(arm.name)
            if not (record and record.excluded):
                self.rig.exclude(arm.name, error)


def _over(state: State, race: Race) -> bool:
    return state.bracketed and (state.search.next_rps is None or race.enough(state))
