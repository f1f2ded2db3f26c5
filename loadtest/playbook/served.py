"""Arms that are a server under load: closed loop, from the project's own generator."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from loadtest.analysis import percentiles_ms, samples_of
from loadtest.folder import ResultsFolder, file_name
from loadtest.histogram import merge
from loadtest.playbook.comparing import answers_from_parity
from loadtest.playbook.experiment import Bench, Lab, Start
from loadtest.playbook.loader import Load
from loadtest.playbook.record import Answers, WindowRecord
from loadtest.results import IN_PERCENTILES, Settings, Trial
from loadtest.rig import Arm as RigArm
from loadtest.rig import Ready, Rig
from loadtest.runner import Fleet
from loadtest.trials import PlannedTrial
from loadtest.window import require_right
from serving.deployment import fetch_needed
from serving.errors import LoadError
from serving.models.repository import Model
from serving.models.variants.parameters import read_record
from serving.process import RunningProcess, family_rss_bytes

USERS = 8.0
_TIMEOUT_S = 10.0
_APART = 1000
"""Between the numbers of trials of one start and of the next."""


@dataclass(frozen=True)
class OwnServer:
    """A server that an experiment starts itself."""

    url: str
    process: RunningProcess
    start_s: float
    facts: Mapping[str, str] = field(default_factory=dict)


Own = Callable[[Lab, Model, Path], AbstractContextManager[OwnServer]]
"""Starts a server for the model on ``lab.server_cpus``; the folder is for its logs and files."""


@dataclass(frozen=True)
class Served:
    """One server in one setting, asked in one way.

    Attributes:
        backend: label; what ``own`` starts is reached as a remote one.
        setting: knobs of ``serving.knobs``.
        load: fields of ``Settings``: encoding, batch_size, shared_memory, scenario, parameters.
        users: of the closed loop.
        model: what is served in place of the lab's model, such as a variant.
        own: starts a server that is none of the product's backends.
        while_loaded: what happens to the server during each window, on a thread of its own.
    """

    name: str
    what: str
    backend: str = "onnxruntime"
    setting: Mapping[str, str] = field(default_factory=dict)
    load: Mapping[str, Any] = field(default_factory=dict)
    users: float = USERS
    model: Callable[[Lab], Model] | None = None
    own: Own | None = None
    while_loaded: Callable[[ServedBench], None] | None = None

    def prepare(self, lab: Lab) -> Start:
        """Raises InfersweepError when the model or the requests cannot be had."""
        model = self.model(lab) if self.model else lab.model
        fetch_needed((self.backend,), lab.listener.stage)
        settings = Settings(
            **{
                "model": model.name,
                "backends": (self.backend,),
                "scenario": "closed",
                "levels": (self.users,),
                "duration_s": lab.pace.window_s,
                "repeats": lab.pace.starts * lab.pace.windows,
                "timeout_s": _TIMEOUT_S,
                "seed": lab.seed,
                "setting": dict(self.setting),
                "server_cpus": lab.server_cpus,
                "client_cpus": lab.client_cpus,
                **self.load,
            }
        )
        folder = ResultsFolder(lab.folder / file_name(self.name))
        fleet = Fleet(cpus=lab.client_cpus)
        rig = Rig(
            settings, model, lab.usable_cpus, folder, lab.listener, fleet, drops_page_cache=False
        )
        folder.path.mkdir(parents=True, exist_ok=True)
        rig.open()
        return partial(self._started, lab, rig)

    @contextmanager
    def _started(self, lab: Lab, rig: Rig) -> Iterator[Bench]:
        with ExitStack() as stack:
            backend, own = self.backend, None
            if self.own:
                own = stack.enter_context(self.own(lab, rig.model, rig.folder.logs))
                backend = f"remote:{own.url}"
            arm = RigArm(self.name, backend, rig.model, self.setting)
            ready = stack.enter_context(rig.ready(arm, None))
            yield ServedBench(self, rig, ready, own, lab.load)


@dataclass
class ServedBench:
    """Attributes: ``ready`` is ``None`` where the answers are wrong."""

    arm: Served
    rig: Rig
    ready: Ready | None
    own: OwnServer | None
    load: Load

    @property
    def url(self) -> str:
        """Where requests of the arm's encoding go.

        Raises:
            ParityError: the answers are wrong.
            ServerError: the server does not speak that.
        """
        ready = require_right(self.ready, self.arm.name)
        return ready.address_for(self.rig.settings.encoding)

    @property
    def start_s(self) -> float | None:
        if self.own:
            return self.own.start_s
        return self.ready.server.start_s if self.ready else None

    @property
    def answers(self) -> Answers | None:
        record = self.rig.records[self.arm.name]
        if record.parity is None:
            return None
        return answers_from_parity(record.parity, read_record(self.rig.model.config))

    @property
    def pid(self) -> int | None:
        process = self.own.process if self.own else self.ready and self.ready.server.process
        return process.pid if process else None

    def window(self, start: int, repeat: int) -> WindowRecord | None:
        """Raises LoadError when the generator failed or the server died."""
        if self.ready is None:
            return None
        rig = self.rig
        planned = PlannedTrial(self.arm.name, self.arm.users, start * _APART + repeat)
        spec = rig.spec(self.ready, (self.arm.users,), planned.id)
        spec = spec.model_copy(update={"server_pid": self.pid})
        with self._beside():
            output = self.load(spec)
        trial = rig.keep(planned, output, self.ready, None)
        if self.own and not self.own.process.alive:
            raise LoadError(
                f"{self.arm.name} {self.own.process.ended()}",
                hint=f"Its log {self.own.process.log} ends with:\n{self.own.process.log_tail()}",
            )
        return self._record(trial, start, repeat)

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """What the arm does to its server meanwhile; what goes wrong there is raised at the end."""
        if self.arm.while_loaded is None:
            yield
            return
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(self.arm.while_loaded, self)
            yield
            done.result()

    def _record(self, trial: Trial, start: int, repeat: int) -> WindowRecord:
        windows = self.rig.folder.read_histograms(trial.id).response_time
        known = percentiles_ms(samples_of(windows, trial.outcomes["not_sent"]))
        every = merge(one[name] for one in windows for name in IN_PERCENTILES if name in one)
        return WindowRecord(
            start=start,
            repeat=repeat,
            count=trial.sent,
            inferences_per_s=trial.outcomes["ok"] / trial.window_s * trial.rows_per_request,
            p50_ms=every.get_value_at_percentile(50) / 1e6,
            p99_ms=known.p99.value_ms if known.p99 else None,
            slowest_ms=every.get_max_value() / 1e6,
            reasons=() if trial.verdict == "VALID" else trial.reasons,
        )

    def rss_bytes(self) -> int | None:
        return (family_rss_bytes(self.pid) or None) if self.pid else None

    def facts(self) -> Mapping[str, str]:
        return self.own.facts if self.own else self.rig.records[self.arm.name].facts
