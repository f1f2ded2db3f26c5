"""What windows are measured on: a server that runs, answers rightly and is warm, and its requests.

Whoever measures (a sweep, a search) asks a rig for a ready server and hands it what was measured.
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
from loadtest.runner import Fleet
from loadtest.shared_memory import shared_inputs
from loadtest.targets import announced
from loadtest.trial import LevelOutput, TrialSpec
from loadtest.trials import PlannedTrial, trial_of, with_resources
from serving.backends.base import Launch
from serving.backends.registry import resolve
from serving.deployment import Placement, Server, plan_launch, running
from serving.errors import InfersweepError
from serving.models.repository import Model
from serving.parity import Reference, check_parity, reference_for
from serving.readiness import OPEN, Access, reach_every_worker

WORKERS_DEADLINE_S = 60.0
IDLE_S = 5.0


class RigListener(Protocol):
    """Is told what happens: the live display, or a test."""

    def stage(self, text: str) -> None:
        """Something that takes a while has begun."""
        ...

    def warning(self, text: str) -> None:
        """Something beside the measuring went wrong."""
        ...

    def backend_excluded(self, label: str, reason: str) -> None: ...


@dataclass(frozen=True)
class Ready:
    """A server that may be loaded, and the folder with its prepared requests."""

    server: Server
    payloads: Path

    @property
    def label(self) -> str:
        return self.server.launch.label

    @property
    def answers(self) -> bool:
        """Whether its answers are computed, and so worth checking."""
        return resolve(self.label)[0].answers


@dataclass
class Rig:
    """The servers of one results folder.

    Attributes:
        access: headers and trust for remote servers; only the headers' names are recorded.
        ceiling_rps: what the generator reaches on the null server, ``None`` where unknown.
        records: what is known of each backend, by label.
    """

    settings: Settings
    model: Model
    usable_cpus: int
    folder: ResultsFolder
    listener: RigListener
    fleet: Fleet
    ceiling_rps: float | None = None
    access: Access = OPEN
    records: dict[str, BackendRecord] = field(default_factory=dict)
    _reference: Reference | None = None
    _payloads: Sequence[Payload] = ()

    def open(self) -> None:
        """Read what an earlier command left, and prepare the requests.

        Raises:
            InfersweepError: the folder is damaged, or the model cannot be read.
        """
        self.folder.drop_half_written()
        try:
            self.folder.clear_live()
        except OSError as error:
            self.listener.warning(f"what an earlier command published stays: {error}")
        self.records = self.folder.read_backends()
        self.listener.stage("asking the reference session")
        self._reference = reference_for(self.model)
        self._payloads = payloads_from(
            self.model,
            self._reference,
            encoding=self.settings.encoding,
            rows=self.settings.batch_size,
        )

    def measure_idle(self, sampler: Sampler) -> None:
        self.listener.stage("measuring the idle machine's power, where that can be read")
        sampler.measure_idle(IDLE_S)

    def plan(self, label: str) -> Launch:
        """How the server would be launched; starts nothing.

        Raises:
            InfersweepError: it cannot be launched here.
        """
        self.listener.stage(f"planning {label}")
        launch, _ = plan_launch(
            label,
            self.model,
            self._placement,
            repository=self.folder.repository,
            work_folder=self.folder.logs,
        )
        return launch

    @contextmanager
    def ready(self, label: str, sampler: Sampler) -> Iterator[Ready | None]:
        """A fresh server, stopped on leaving; ``None`` when its answers are wrong.

        Raises:
            InfersweepError: it cannot be launched, died, or was not ready in time.
        """
        self.listener.stage(f"starting {label}")
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
            if not self._admit(server):
                yield None
                return
            self._reach_workers(server)
            with self._prepared(server) as payloads, _sampled(sampler, server):
                yield Ready(server, payloads)

    @property
    def _placement(self) -> Placement:
        settings = self.settings
        return Placement(settings.server_cpus, self.usable_cpus, slo_ms=settings.slo_ms)

    def _announced(self, server: Server) -> AbstractContextManager[None]:
        labels = {"job": "server", "run": self.folder.path.name, "backend": server.launch.label}
        return announced(server.launch.metrics_url, labels, self.listener.warning)

    @contextmanager
    def _prepared(self, server: Server) -> Iterator[Path]:
        """The requests as files that the generator reads."""
        folder, payloads = self.folder.path / "payloads", self._payloads
        shared = self.settings.shared_memory
        with shared_inputs(server.url, payloads) if shared else nullcontext(payloads) as placed:
            write_payloads(folder, placed)
            yield folder

    def spec(
        self,
        ready: Ready,
        levels: tuple[float, ...],
        name: str,
        settings: Settings | None = None,
    ) -> TrialSpec:
        """What the generator is told; its files are called ``name``.

        ``settings`` are of these windows, where they are not the rig's own.
        """
        settings, server = settings or self.settings, ready.server
        spec = TrialSpec(
            url=server.address_for(settings.encoding),
            model=server.model.name,
            payloads=ready.payloads,
            driver=settings.driver,
            engine=settings.engine,
            ca_file=self.access.ca_file,
            headers=dict(self.access.headers),
            scenario=settings.scenario,
            parameters=settings.parameters,
            levels=levels,
            duration_s=settings.duration_s,
            timeout_s=settings.timeout_s,
            connections=settings.connections,
            seed=settings.seed,
            values_every=20 if ready.answers else 0,
            server_pid=server.process.pid if server.process else None,
            output=self.folder.logs / f"{name}.generator.jsonl",
            until_confident=settings.until_confident,
            limit_s=settings.limit_s,
            slo_ns=settings.slo_ns,
        )
        return self._with_boards(spec, ready.label)

    def log(self, name: str) -> Path:
        """Where the generator of such a ``spec`` prints."""
        return self.folder.logs / f"{name}.generator.log"

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

    def keep(
        self,
        planned: PlannedTrial,
        output: LevelOutput,
        ready: Ready,
        sampler: Sampler,
        settings: Settings | None = None,
    ) -> Trial:
        """Judge what was measured and write it down; call as soon as the window is over.

        ``settings`` are of this trial, where they are not the rig's own.
        """
        trial, histograms = trial_of(
            planned,
            output,
            settings or self.settings,
            client_cpus=self.fleet.cpu_count,
            server_cpus=ready.server.cpu_count,
            server_ended=ready.server.ended,
            ceiling_rps=self.ceiling_rps if ready.answers else None,
        )
        trial = with_resources(trial, sampler)
        self.folder.append_trial(trial, histograms)
        return trial

    def _admit(self, server: Server) -> bool:
        """Parity, once per backend and run; a backend that fails is not measured."""
        label = server.launch.label
        if label in self.records:
            return True
        assert self._reference is not None
        parity = None
        if resolve(label)[0].answers:
            self.listener.stage(f"checking the answers of {label}")
            result = check_parity(server.url, server.model, self._reference, self.access)
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
        self._keep_record(record)
        return not failed

    def _reach_workers(self, server: Server) -> None:
        if server.process is None:
            return
        assert self._reference is not None
        self.listener.stage(f"warming up {server.launch.label}")
        payload = payloads_from(server.model, self._reference)[0]
        reach_every_worker(
            server.url,
            server.model.name,
            payload.body,
            payload.headers,
            count=server.launch.worker_count,
            deadline_s=WORKERS_DEADLINE_S,
        )

    def exclude(self, label: str, error: InfersweepError) -> None:
        """Leave a backend out from now on, and say why."""
        known = self.records.get(label)
        reason = " ".join(str(error).split())
        self._keep_record(
            known.model_copy(update={"excluded": reason})
            if known
            else BackendRecord(label=label, facts={}, parity=None, start_s=None, excluded=reason)
        )

    def _keep_record(self, record: BackendRecord) -> None:
        self.records[record.label] = record
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
