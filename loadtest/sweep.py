"""A sweep over backends and levels: planned, shuffled, interleaved, resumable.

Each repeat visits every backend once, in a random order; a visit starts a fresh server and runs all
levels, in a random order. So drift of the machine meets every backend alike.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from loadtest.resources.sampler import Sampler
from loadtest.results import Trial
from loadtest.rig import Ready, Rig, RigListener
from loadtest.runner import generate
from loadtest.trials import PlannedTrial, plan_visits
from serving.errors import InfersweepError, LoadError


class SweepListener(RigListener, Protocol):
    """Is told what happens: the live display, or a test."""

    def trial_done(self, trial: Trial, done: int, planned: int) -> None: ...


@dataclass
class Sweep:
    """Runs the visits of one results folder that are not finished yet."""

    rig: Rig
    listener: SweepListener
    _finished: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Measure what is missing. Everything measured before an exception stays on disk.

        Raises:
            InfersweepError: the generator failed, or the model cannot be read.
        """
        rig = self.rig
        rig.open()
        self._finished = {trial.id for trial in rig.folder.read_trials()}
        self._foresee()
        with Sampler(rig.folder.resources) as sampler:
            rig.measure_idle(sampler)
            for visit in plan_visits(rig.settings):
                pending = [trial for trial in visit.trials if trial.id not in self._finished]
                record = rig.records.get(visit.backend)
                if pending and not (record and record.excluded):
                    self._visit(visit.backend, pending, sampler)
            if sampler.ended is not None:
                self.listener.warning(f"resources were not sampled to the end: {sampler.ended}")

    def _foresee(self) -> None:
        """Exclude what cannot be launched, before anything starts."""
        for label in self.rig.settings.backends:
            try:
                self.rig.plan(self.rig.arm(label))
            except InfersweepError as error:
                self.rig.exclude(label, error)

    def _visit(self, label: str, pending: list[PlannedTrial], sampler: Sampler) -> None:
        """Run ``pending``; a server that died is started again for what is left."""
        while pending:
            try:
                with self.rig.ready(self.rig.arm(label), sampler) as ready:
                    if ready is None:
                        return
                    self._measure_all(ready, pending, sampler)
            except LoadError:
                raise
            except InfersweepError as error:
                self.rig.exclude(label, error)
                return

    def _measure_all(self, ready: Ready, pending: list[PlannedTrial], sampler: Sampler) -> None:
        """Take from ``pending`` what was measured; stop when the server is gone."""
        rig, planned = self.rig, self.rig.settings.planned_trials
        self.listener.stage(f"{ready.arm.name}, repeat {pending[0].repeat}")
        name = pending[0].id
        spec = rig.spec(ready, tuple(trial.level for trial in pending), name)
        for output in generate(spec, rig.fleet, rig.log(name)):
            trial = rig.keep(pending.pop(0), output, ready, sampler)
            self._finished.add(trial.id)
            self.listener.trial_done(trial, len(self._finished), planned)
            if ready.server.ended is not None:
                return
