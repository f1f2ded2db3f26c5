"""A sweep over backends and levels: planned, shuffled, interleaved, resumable.

Each repeat visits every backend once, in a random order; a visit starts a fresh server and runs all
levels, in a random order. So drift of the machine meets every backend alike.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from loadtest.folder import ResultsFolder
from loadtest.live import LoadLabels
from loadtest.payload import Payload, write_payloads
from loadtest.prepare import payloads_from
from loadtest.resources.sampler import ANOTHER_HOST, Sampler
from loadtest.results import BackendRecord, Parity, Settings, Trial
from loadtest.runner import Fleet, generate
from loadtest.shared_memory import shared_inputs
from loadtest.targets import announced
from loadtest.trial import TrialSpec
from loadtest.trials import PlannedTrial, plan_visits, trial_of, with_resources
from serving.backends.registry import resolve
from serving.deployment import Placement, Server, plan_launch, running
from serving.errors import InfersweepError, LoadError
from serving.models.repository import Model
from serving.parity import Reference, check_parity, reference_for
from serving.readiness import OPEN, Access, reach_every_worker

WORKERS_DEADLINE_S = 60.0
IDLE_S = 5.0


class SweepListener(Protocol):
    """Is told what happens: the live display, or a test."""

    def stage(self, text: str) -> None:
        """Something that takes a while has begun."""
        ...

    def warning(self, text: str) -> None:
        """Something beside the measuring went wrong."""
        ...

    def trial_done(self, trial: Trial, done: int, planned: int) -> None: ...

    def backend_excluded(self, label: str, reason: str) -> None: ...


@dataclass
class Sweep:
    """Runs the visits of one results folder that are not finished yet.

    Attributes:
        access: headers and trust for remote servers; only the headers' names are recorded.
        ceiling_rps: what the generator reaches on the null server, ``None`` where unknown.
        apart: numbers of processes beside the run that are no part of the generator.
    """

    settings: Settings
    model: Model
    usable_cpus: int
    folder: ResultsFolder
    listener: SweepListener
    fleet: Fleet
    ceiling_rps: float | None = None
    access: Access = OPEN
    apart: tuple[int, ...] = ()
    _records: dict[str, BackendRecord] = field(default_factory=dict)
    _finished: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Measure what is missing. Everything measured before an exception stays on disk.

        Raises:
            InfersweepError: the generator failed, or the model cannot be read.
        """
        self.folder.drop_half_written()
        self._clear_live()
        self._finished = {trial.id for trial in self.folder.read_trials()}
        self._records = self.folder.read_backends()
        self.listener.stage("asking the reference session")
        settings = self.settings
        reference = reference_for(self.model)
        payloads = payloads_from(
            self.model, reference, encoding=settings.encoding, rows=settings.batch_size
        )
        self._foresee()
        with Sampler(self.folder.resources, apart=lambda: self.apart) as sampler:
            self.listener.stage("measuring the idle machine's power, where that can be read")
            sampler.measure_idle(IDLE_S)
            for visit in plan_visits(settings):
                pending = [trial for trial in visit.trials if trial.id not in self._finished]
                record = self._records.get(visit.backend)
                if pending and not (record and record.excluded):
                    self._visit(visit.backend, pending, reference, payloads, sampler)
            if sampler.ended is not None:
                self.listener.warning(f"resources were not sampled to the end: {sampler.ended}")

    def _clear_live(self) -> None:
        try:
            self.folder.clear_live()
        except OSError as error:
            self.listener.warning(f"what an earlier command published stays: {error}")

    def _foresee(self) -> None:
        """Exclude what cannot be launched, before anything starts."""
        for label in self.settings.backends:
            self.listener.stage(f"planning {label}")
            try:
                plan_launch(
                    label,
                    self.model,
                    self._placement,
                    repository=self.folder.repository,
                    work_folder=self.folder.logs,
                )
            except InfersweepError as error:
                self._exclude(label, error)

    @property
    def _placement(self) -> Placement:
        settings = self.settings
        return Placement(settings.server_cpus, self.usable_cpus, slo_ms=settings.slo_ms)

    def _announced(self, server: Server) -> AbstractContextManager[None]:
        labels = {"job": "server", "run": self.folder.path.name, "backend": server.launch.label}
        return announced(server.launch.metrics_url, labels, self.listener.warning)

    @contextmanager
    def _prepared(self, server: Server, payloads: Sequence[Payload]) -> Iterator[Path]:
        """The requests as files that the generator reads."""
        folder = self.folder.path / "payloads"
        shared = self.settings.shared_memory
        with shared_inputs(server.url, payloads) if shared else nullcontext(payloads) as placed:
            write_payloads(folder, placed)
            yield folder

    def _visit(
        self,
        label: str,
        pending: list[PlannedTrial],
        reference: Reference,
        payloads: Sequence[Payload],
        sampler: Sampler,
    ) -> None:
        """Run ``pending``; a server that died is started again for what is left."""
        while pending:
            self.listener.stage(f"starting {label}")
            try:
                with (
                    running(
                        label,
                        self.model,
                        self._placement,
                        repository=self.folder.repository,
                        logs=self.folder.logs,
                        access=self.access,
                    ) as server,
                    self._announced(server),
                ):
                    if not self._admit(server, reference):
                        return
                    self._reach_workers(server, reference)
                    with (
                        self._prepared(server, payloads) as folder,
                        _sampled(sampler, server),
                    ):
                        self._measure_all(server, pending, folder, sampler)
            except LoadError:
                raise
            except InfersweepError as error:
                self._exclude(label, error)
                return

    def _measure_all(
        self, server: Server, pending: list[PlannedTrial], folder: Path, sampler: Sampler
    ) -> None:
        """Take from ``pending`` what was measured; stop when the server is gone."""
        label, settings = server.launch.label, self.settings
        self.listener.stage(f"{label}, repeat {pending[0].repeat}")
        name = f"{pending[0].id}.generator"
        spec = self._spec(server, pending, folder, self.folder.logs / f"{name}.jsonl")
        spec = self._with_boards(spec, label)
        for output in generate(spec, self.fleet, self.folder.logs / f"{name}.log"):
            planned = pending.pop(0)
            trial, histograms = trial_of(
                planned,
                output,
                settings,
                client_cpus=self.fleet.cpu_count,
                server_cpus=server.cpu_count,
                server_ended=server.ended,
                ceiling_rps=self.ceiling_rps if resolve(label)[0].answers else None,
            )
            trial = with_resources(trial, sampler)
            self.folder.append_trial(trial, histograms)
            self._finished.add(trial.id)
            self.listener.trial_done(trial, len(self._finished), settings.planned_trials)
            if server.ended is not None:
                return

    def _spec(
        self, server: Server, pending: Sequence[PlannedTrial], payloads: Path, output: Path
    ) -> TrialSpec:
        settings = self.settings
        return TrialSpec(
            url=server.address_for(settings.encoding),
            model=server.model.name,
            payloads=payloads,
            driver=settings.driver,
            engine=settings.engine,
            ca_file=self.access.ca_file,
            headers=dict(self.access.headers),
            scenario=settings.scenario,
            parameters=settings.parameters,
            levels=tuple(trial.level for trial in pending),
            duration_s=settings.duration_s,
            timeout_s=settings.timeout_s,
            connections=settings.connections,
            seed=settings.seed,
            values_every=20 if resolve(server.launch.label)[0].answers else 0,
            server_pid=server.process.pid if server.process else None,
            output=output,
            until_confident=settings.until_confident,
            limit_s=settings.limit_s,
            slo_ns=settings.slo_ns,
        )

    def _with_boards(self, spec: TrialSpec, backend: str) -> TrialSpec:
        """The same with generators that publish, and what whoever reads them must know."""
        told = LoadLabels(
            backend=backend,
            model=spec.model,
            scenario=spec.scenario,
            slo_ns=spec.slo_ns,
            ceiling_rps=self.ceiling_rps,
        )
        try:
            labels = self.folder.live / f"{spec.output.stem}.json"
            labels.write_text(told.model_dump_json(), encoding="utf-8")
        except OSError as error:
            self.listener.warning(f"{backend}'s load is not published: {error}")
            return spec
        return spec.model_copy(update={"labels": labels})

    def _admit(self, server: Server, reference: Reference) -> bool:
        """Parity, once per backend and run; a backend that fails is not measured."""
        label = server.launch.label
        if label in self._records:
            return True
        parity = None
        if resolve(label)[0].answers:
            self.listener.stage(f"checking the answers of {label}")
            result = check_parity(server.url, server.model, reference, self.access)
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

    def _reach_workers(self, server: Server, reference: Reference) -> None:
        if server.process is None:
            return
        self.listener.stage(f"warming up {server.launch.label}")
        payload = payloads_from(server.model, reference)[0]
        reach_every_worker(
            server.url,
            server.model.name,
            payload.body,
            payload.headers,
            count=server.launch.worker_count,
            deadline_s=WORKERS_DEADLINE_S,
        )

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


@contextmanager
def _sampled(sampler: Sampler, server: Server) -> Iterator[None]:
    """Samples are of this server while it is loaded."""
    hidden = server.launch.hidden
    pid = server.process.pid if server.process and not hidden else None
    sampler.watch(server.launch.label, pid, hidden or ANOTHER_HOST)
    try:
        yield
    finally:
        sampler.unwatch()
