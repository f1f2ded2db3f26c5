"""A closed-loop sweep over backends: planned, shuffled, interleaved, resumable.

Each repeat visits every backend once, in a random order; a visit starts a fresh server and runs all
concurrencies, in a random order. So drift of the machine meets every backend alike.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from loadtest.payload import Payload, payloads_from, write_payloads
from loadtest.results import BackendRecord, Parity, ResultsFolder, Settings, Trial
from loadtest.runner import run_trial
from loadtest.trial import TrialSpec
from serving.backends import resolve
from serving.deployment import Placement, Server, running
from serving.errors import InfersweepError, LoadError
from serving.models.repository import Model
from serving.parity import Reference, check_parity, reference_for
from serving.readiness import reach_every_worker

WARMUP_S = 0.5
WORKERS_DEADLINE_S = 60.0


@dataclass(frozen=True)
class PlannedTrial:
    backend: str
    concurrency: int
    repeat: int

    @property
    def id(self) -> str:
        name = "".join(c if c.isalnum() else "-" for c in self.backend)
        return f"{name}-c{self.concurrency}-r{self.repeat}"


@dataclass(frozen=True)
class Visit:
    """One server start and the trials that run against it."""

    backend: str
    trials: tuple[PlannedTrial, ...]


def plan_visits(settings: Settings) -> list[Visit]:
    """All visits in the order they run; the same settings give the same order."""
    rng = random.Random(settings.seed)
    visits = []
    for repeat in range(1, settings.repeats + 1):
        for backend in rng.sample(settings.backends, len(settings.backends)):
            order = rng.sample(settings.concurrency, len(settings.concurrency))
            visits.append(Visit(backend, tuple(PlannedTrial(backend, c, repeat) for c in order)))
    return visits


class SweepListener(Protocol):
    """Is told what happens: the live display, or a test."""

    def stage(self, text: str) -> None:
        """Something that takes a while has begun."""
        ...

    def trial_done(self, trial: Trial, done: int, planned: int) -> None: ...

    def backend_excluded(self, label: str, reason: str) -> None: ...


@dataclass
class Sweep:
    """Runs the visits of one results folder that are not finished yet."""

    settings: Settings
    model: Model
    usable_cpus: int
    folder: ResultsFolder
    listener: SweepListener
    _records: dict[str, BackendRecord] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Measure what is missing. Everything measured before an exception stays on disk.

        Raises:
            InfersweepError: the generator failed, or the model cannot be read.
        """
        self.folder.drop_half_written()
        self._finished = {trial.id for trial in self.folder.read_trials()}
        self._records = self.folder.read_backends()
        self.listener.stage("asking the reference session")
        reference = reference_for(self.model)
        payloads = payloads_from(self.model, reference)
        write_payloads(self._payloads, payloads)
        for visit in plan_visits(self.settings):
            pending = [trial for trial in visit.trials if trial.id not in self._finished]
            record = self._records.get(visit.backend)
            if pending and not (record and record.excluded):
                self._visit(visit.backend, pending, reference, payloads)

    @property
    def _payloads(self) -> Path:
        return self.folder.path / "payloads"

    def _visit(
        self,
        label: str,
        pending: list[PlannedTrial],
        reference: Reference,
        payloads: Sequence[Payload],
    ) -> None:
        """Run ``pending``; a server that died is started again for what is left."""
        placement = Placement(self.settings.server_cpus, self.usable_cpus)
        while pending:
            self.listener.stage(f"starting {label}")
            try:
                with running(
                    label,
                    self.model,
                    placement,
                    repository=self.folder.repository,
                    logs=self.folder.logs,
                ) as server:
                    if not self._admit(server, reference):
                        return
                    self._reach_workers(server, payloads[0])
                    while pending and server.ended is None:
                        self._measure(server, pending.pop(0))
            except LoadError:
                raise
            except InfersweepError as error:
                self._exclude(label, error)
                return

    def _admit(self, server: Server, reference: Reference) -> bool:
        """Parity, once per backend and run; a backend that fails is not measured."""
        label = server.launch.label
        if label in self._records:
            return True
        parity = None
        if resolve(label)[0].answers:
            self.listener.stage(f"checking the answers of {label}")
            result = check_parity(server.url, server.model, reference)
            parity = Parity(
                passed=result.passed,
                rows=result.rows,
                largest_difference=result.largest_difference,
                tolerance=str(result.tolerance),
                detail=result.detail,
            )
        failed = parity is not None and not parity.passed
        record = BackendRecord(
            label=label,
            facts=dict(server.launch.facts),
            warnings=server.launch.warnings,
            parity=parity,
            start_s=server.start_s,
            excluded=f"its answers differ: {parity.detail}" if parity and failed else None,
        )
        self._keep(record)
        return not failed

    def _reach_workers(self, server: Server, payload: Payload) -> None:
        self.listener.stage(f"warming up {server.launch.label}")
        reach_every_worker(
            server.url,
            server.model.name,
            payload.body,
            payload.headers,
            count=server.launch.worker_count,
            deadline_s=WORKERS_DEADLINE_S,
        )

    def _measure(self, server: Server, planned: PlannedTrial) -> None:
        label, settings = server.launch.label, self.settings
        self.listener.stage(f"{label}, concurrency {planned.concurrency}, repeat {planned.repeat}")
        spec = TrialSpec(
            url=server.url,
            model=server.model.name,
            payloads=self._payloads,
            concurrency=planned.concurrency,
            warmup_s=WARMUP_S,
            window_s=settings.duration_s,
            timeout_s=settings.timeout_s,
            seed=settings.seed,
            values_every=20 if resolve(label)[0].answers else 0,
            server_pid=server.process.pid if server.process else None,
            output=self.folder.logs / f"{planned.id}.output.json",
        )
        trial, histograms = run_trial(
            spec,
            server,
            trial_id=planned.id,
            repeat=planned.repeat,
            client_cpus=settings.client_cpus,
            log=self.folder.logs / f"{planned.id}.generator.log",
        )
        self.folder.append_trial(trial, histograms)
        self._finished.add(trial.id)
        self.listener.trial_done(trial, len(self._finished), settings.planned_trials)

    def _exclude(self, label: str, error: InfersweepError) -> None:
        known = self._records.get(label)
        reason = " ".join(str(error).split())
        self._keep(
            known.model_copy(update={"excluded": reason})
            if known
            else BackendRecord(label=label, facts={}, parity=None, start_s=None, excluded=reason)
        )

    def _keep(self, record: BackendRecord) -> None:
        self._records[record.label] = record
        self.folder.write_backend(record)
        if record.excluded:
            self.listener.backend_excluded(record.label, record.excluded)
