"""What windows are measured on: a server that runs, answers rightly and is warm, and its requests.

Whoever measures (a sweep, a search) asks a rig for a ready server and hands it what was measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from loadtest.coldstart import ColdStarts
from loadtest.folder import ResultsFolder, file_name
from loadtest.links.bound import unless_link_bound
from loadtest.links.crossing import through
from loadtest.links.load import link_fact, load_link
from loadtest.links.running import RunningLink
from loadtest.live import LoadLabels
from loadtest.payload import write_payloads
from loadtest.questions import Questions, questions_of
from loadtest.resources.sampler import ANOTHER_HOST, Sampler
from loadtest.results import BackendRecord, Parity, Settings, Trial
from loadtest.runner import Fleet
from loadtest.shared_memory import shared_inputs
from loadtest.targets import announced
from loadtest.timings import source_of
from loadtest.trial import LevelOutput, TrialSpec
from loadtest.trials import PlannedTrial, trial_of, with_resources
from serving.backends.base import Launch
from serving.backends.registry import resolve
from serving.deployment import Placement, Server, plan_launch, running
from serving.errors import InfersweepError
from serving.models.repository import Model
from serving.parity import check_parity
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
class Arm:
    """One of those that are measured against each other: a model on a backend, in a setting.

    Attributes:
        name: what trials, records and pages call it; the backend's label where nothing is set.
        backend: a label such as ``fastapi:torch``.
        setting: knobs of ``serving.knobs`` and their values.
        link: profile or file of the link that the load crosses, ``None`` for none.
    """

    name: str
    backend: str
    model: Model
    setting: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    link: str | None = None

    @property
    def answers(self) -> bool:
        """Whether its answers are computed, and so worth checking."""
        return resolve(self.backend)[0].answers


@dataclass(frozen=True)
class Ready:
    """A server that may be loaded, and the folder with its prepared requests.

    Attributes:
        link: what the load crosses on its way; all else reaches the server directly.
    """

    arm: Arm
    server: Server
    payloads: Path
    link: RunningLink | None = None

    def address_for(self, encoding: str) -> str:
        """Where the load of ``encoding`` goes.

        Raises:
            ServerError: the server does not speak that.
        """
        url = self.server.address_for(encoding)
        return through(url, self.link.address) if self.link else url


@dataclass
class Rig:
    """The servers of one results folder.

    Attributes:
        access: headers and trust for remote servers; only the headers' names are recorded.
        ceiling_rps: what the generator reaches on the null server, ``None`` where unknown.
        records: what is known of each backend, by label.
        drops_page_cache: before a second start, so that starts with files cached and not are known.
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
    drops_page_cache: bool = True
    _questions: dict[str, Questions] = field(default_factory=dict)
    _starts: ColdStarts = field(default_factory=ColdStarts)

    def arm(self, label: str) -> Arm:
        """The rig's model on a backend, in the run's own setting and over its link."""
        return Arm(label, label, self.model, self.settings.setting, self.settings.link)

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
        self._starts = ColdStarts(self.folder.read_starts())
        self._asked(self.model)

    def _asked(self, model: Model) -> Questions:
        if model.name not in self._questions:
            self.listener.stage(f"asking the reference session of {model.name}")
            self._questions[model.name] = questions_of(model, self.settings, self.fleet)
        return self._questions[model.name]

    def measure_idle(self, sampler: Sampler) -> None:
        self.listener.stage("measuring the idle machine's power, where that can be read")
        sampler.measure_idle(IDLE_S)

    def plan(self, arm: Arm) -> Launch:
        """How the server would be launched; starts nothing.

        Raises:
            InfersweepError: it cannot be launched here.
        """
        self.listener.stage(f"planning {arm.name}")
        launch, _ = plan_launch(
            arm.backend,
            arm.model,
            self._placement(arm),
            repository=self._repository(arm),
            work_folder=self.folder.logs,
        )
        return launch

    @contextmanager
    def ready(self, arm: Arm, sampler: Sampler | None) -> Iterator[Ready | None]:
        """A fresh server, stopped on leaving; ``None`` when its answers are wrong.

        Without a sampler its resources are not sampled, so that several may be up at once.

        Raises:
            InfersweepError: it cannot be launched, died, or was not ready in time.
        """
        state = self._starts.before_start(arm.name) if self.drops_page_cache else "as found"
        self.listener.stage(f"starting {arm.name}, files {state}")
        with (
            running(
                arm.backend,
                arm.model,
                self._placement(arm),
                repository=self._repository(arm),
                logs=self.folder.logs,
                access=self.access,
            ) as server,
            self._announced(arm, server),
        ):
            self._keep_start(arm, server)
            if not self._admit(arm, server):
                yield None
                return
            self._reach_workers(arm, server)
            with (
                self._prepared(arm, server) as payloads,
                self._linked(arm, server) as link,
                _sampled(sampler, arm.name, server) if sampler else nullcontext(),
            ):
                yield Ready(arm, server, payloads, link)

    def _linked(self, arm: Arm, server: Server) -> AbstractContextManager[RunningLink | None]:
        url = server.address_for(self.settings.encoding)
        log = self.folder.logs / f"{file_name(arm.name)}.link.log"
        done = sum(trial.backend == arm.name for trial in self.folder.read_trials())
        return load_link(arm.link, url, self.settings, log, start=done)

    def _keep_start(self, arm: Arm, server: Server) -> None:
        """How long this server took to its first right answer."""
        first = self._asked(arm.model).first
        start = self._starts.started(arm.name, server, first, values=arm.answers)
        if start is not None:
            self.folder.append_start(start)

    def _placement(self, arm: Arm) -> Placement:
        settings = self.settings
        return Placement(
            settings.server_cpus, self.usable_cpus, slo_ms=settings.slo_ms, setting=arm.setting
        )

    def _repository(self, arm: Arm) -> Path:
        """One for all arms with nothing set, whose configuration is the same."""
        own = self.folder.path / "settings" / file_name(arm.name)
        return own if arm.setting else self.folder.repository

    @contextmanager
    def _announced(self, arm: Arm, server: Server) -> Iterator[None]:
        labels = {"job": "server", "run": self.folder.path.name, "backend": arm.name}
        with ExitStack() as announcements:
            for url in server.launch.metrics_urls:
                announcements.enter_context(announced(url, labels, self.listener.warning))
            yield

    @contextmanager
    def _prepared(self, arm: Arm, server: Server) -> Iterator[Path]:
        """The requests as files that the generator reads."""
        folder, payloads = self.folder.path / "payloads", self._asked(arm.model).payloads
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
            url=ready.address_for(settings.encoding),
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
            values_every=20 if ready.arm.answers else 0,
            server_pid=server.process.pid if server.process else None,
            output=self.folder.logs / f"{name}.generator.jsonl",
            until_confident=settings.until_confident,
            limit_s=settings.limit_s,
            slo_ns=settings.slo_ns,
            timings=source_of(server.launch, *server.model.names),
            records=self.folder.new_requests() if settings.keep_requests else None,
        )
        return self._with_boards(spec, ready.arm.name)

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
        sampler: Sampler | None,
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
            ceiling_rps=self.ceiling_rps if ready.arm.answers else None,
            floor_ms=self._asked(ready.arm.model).floor_ms,
            encode_ns=self._asked(ready.arm.model).encode_ns,
        )
        if ready.link is not None:
            trial = unless_link_bound(trial, ready.link, self.fleet.cpu_count)
        if sampler is not None:
            trial = with_resources(trial, sampler)
        if self.settings.keep_requests:
            self.folder.keep_requests(trial)
        self.folder.append_trial(trial, histograms)
        return trial

    def _admit(self, arm: Arm, server: Server) -> bool:
        """Parity, once per arm and run; one that fails is not measured."""
        if arm.name in self.records:
            return True
        parity = None
        if arm.answers:
            self.listener.stage(f"checking the answers of {arm.name}")
            reference = self._asked(arm.model).reference
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
            label=arm.name,
            facts={**server.launch.facts, **link_fact(arm.link, self.settings)},
            warnings=server.launch.warnings,
            parity=parity,
            start_s=server.start_s,
            excluded=f"its answers differ: {parity.detail}" if parity and failed else None,
        )
        self._keep_record(record)
        return not failed

    def _reach_workers(self, arm: Arm, server: Server) -> None:
        if server.process is None:
            return
        self.listener.stage(f"warming up {arm.name}")
        payload = self._asked(arm.model).first
        reach_every_worker(
            server.url,
            server.model.name,
            payload.body,
            payload.headers,
            count=server.launch.worker_count,
            deadline_s=WORKERS_DEADLINE_S,
        )

    def exclude(self, label: str, error: InfersweepError) -> None:
        """Leave an arm out from now on, and say why; ``label`` is its name."""
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
def _sampled(sampler: Sampler, name: str, server: Server) -> Iterator[None]:
    """Samples are of this server while it is loaded."""
    hidden = server.launch.hidden
    pid = server.process.pid if server.process and not hidden else None
    sampler.watch(name, pid, hidden or ANOTHER_HOST)
    try:
        yield
    finally:
        sampler.unwatch()
