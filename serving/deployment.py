"""From a label such as ``fastapi:torch`` to a server that answers: plan, start, wait, stop."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from urllib.parse import urlsplit

from serving.backends import triton
from serving.backends.base import Launch, ServePlan
from serving.backends.registry import resolve
from serving.backends.triton.locate import Source, find_launcher
from serving.backends.triton.wheel import ensure_triton
from serving.errors import ServerError, UsageError
from serving.knobs import (
    KNOBS,
    Room,
    Setting,
    allowed,
    checked,
    default_setting,
    describe,
    environment,
    threads,
    write_setting,
)
from serving.models.repository import Model, place
from serving.process import RunningProcess, free_port, wait_until
from serving.readiness import OPEN, Access, get_status, is_grpc, wait_ready

_NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Placement:
    """What a server is given.

    Attributes:
        instances: workers or model instances; one per CPU when ``None``, on a GPU as many as the
            configuration says.
        usable_cpus: what the machine has, to warn against more threads than that.
        slo_ms: the response time objective that the server's metrics count by.
        setting: knobs that are not at their default; they go before ``instances`` and
            ``intra_op_threads``, and may not state them once more.
    """

    cpus: tuple[int, ...]
    usable_cpus: int
    instances: int | None = None
    intra_op_threads: int = 1
    host: str = "127.0.0.1"
    port: int | None = None
    slo_ms: float | None = None
    setting: Setting = field(default_factory=lambda: _NOTHING)


@dataclass(frozen=True)
class Server:
    """A server that is ready. ``process`` is ``None`` for one that is not ours."""

    launch: Launch
    model: Model
    process: RunningProcess | None
    start_s: float | None
    cpu_count: int

    @property
    def url(self) -> str:
        return self.launch.url

    def address_for(self, encoding: str) -> str:
        """Where requests of ``encoding`` go: the gRPC address for ``grpc``, else the HTTP one.

        Raises:
            ServerError: the server does not speak that.
        """
        wants_grpc = encoding == "grpc"
        if wants_grpc == is_grpc(self.url):
            return self.url
        if wants_grpc and self.launch.grpc_url:
            return self.launch.grpc_url
        spoken = "gRPC" if wants_grpc else "HTTP"
        raise ServerError(
            f"{self.launch.label} does not speak {spoken}",
            hint="Choose another --encoding, or give the other address of this server.",
        )

    @property
    def ended(self) -> str | None:
        """How the server ended, ``None`` while it runs."""
        if self.process is None or self.process.alive:
            return None
        return self.process.ended()


def plan_launch(
    label: str, model: Model, placement: Placement, *, repository: Path, work_folder: Path
) -> tuple[Launch, Model]:
    """Write the placed repository and ask the backend for its launch; starts nothing.

    Raises:
        UsageError: the setting cannot be, or says what the placement says.
        InfersweepError: as the backend's ``launch`` says.
    """
    backend, option = resolve(label)
    placed, setting = place_for(label, model, placement, repository)
    variables = environment(setting)
    plan = ServePlan(
        label=label,
        option=option,
        model=placed,
        cpus=placement.cpus,
        port=placement.port or free_port(placement.host),
        work_folder=work_folder,
        host=placement.host,
        slo_ms=placement.slo_ms,
        setting=setting,
        env=variables,
    )
    launch = backend.launch(plan)
    if setting:
        facts = {**launch.facts, "setting": describe(setting)}
        launch = replace(launch, env={**launch.env, **variables}, facts=facts)
    warning = _thread_warning(label, placed, placement, setting)
    if warning and launch.argv:
        launch = replace(launch, warnings=(*launch.warnings, warning))
    return launch, placed


def place_for(
    label: str, model: Model, placement: Placement, repository: Path
) -> tuple[Model, Setting]:
    """Write the repository that a backend serves from; also gives the setting in its one form.

    Raises:
        UsageError: the setting cannot be, or says what the placement says.
    """
    setting = _checked(label, model, placement)
    room = Room(len(placement.cpus), model.config)
    placed = place(
        model,
        repository,
        instances=placement.instances or int(KNOBS["instances"].default(room)),
        intra_op_threads=placement.intra_op_threads,
        edit=lambda message: write_setting(message, setting),
    )
    return placed, setting


@contextmanager
def running(
    label: str,
    model: Model,
    placement: Placement,
    *,
    repository: Path,
    logs: Path,
    access: Access = OPEN,
) -> Iterator[Server]:
    """A ready server for ``model``, stopped on leaving.

    Raises:
        InfersweepError: it cannot be launched, died, or was not ready in time.
    """
    name = "".join(c if c.isalnum() else "_" for c in label)
    launch, placed = plan_launch(label, model, placement, repository=repository, work_folder=logs)
    context = (
        RunningProcess(launch.argv, cpus=placement.cpus, env=launch.env, log=logs / f"{name}.log")
        if launch.argv
        else nullcontext()
    )
    with context as process:
        waited = wait_ready(
            launch.url,
            placed.name,
            deadline_s=launch.ready_within_s,
            process=process,
            label=label,
            access=access,
        )
        for url in launch.replica_metrics_urls:
            _wait_replica(url, launch, process)
        yield Server(launch, placed, process, waited if process else None, len(placement.cpus))


def fetch_needed(labels: Sequence[str], progress: Callable[[str], None]) -> None:
    """Download what the named backends need and the machine does not have yet.

    Raises:
        FetchError: the download failed.
        MachineError: the machine cannot run it.
    """
    wants_triton = any(resolve(label)[0] is triton.BACKEND for label in labels)
    if wants_triton and find_launcher(os.environ).source is Source.WHEEL:
        ensure_triton(progress)


def _checked(label: str, model: Model, placement: Placement) -> Setting:
    """The setting, every value in its one form.

    Raises:
        UsageError: it cannot be, or says what the placement says.
    """
    setting = checked(label, placement.setting)
    stated = {
        "instances": placement.instances is not None,
        "workers": placement.instances is not None,
        "intra_op_threads": placement.intra_op_threads != 1,
    }
    twice = [name for name in setting if stated.get(name)]
    if twice:
        raise UsageError(f"{twice[0]} is stated twice", hint="Leave it out of the setting.")
    # More threads than CPUs are a warning here, and a matter for whoever searches.
    why_not = allowed(label, setting, Room(len(placement.cpus), model.config, math.inf))
    if why_not:
        raise UsageError(f"{label} cannot be set so: {why_not}", hint="Change one of these.")
    return setting


def _wait_replica(url: str, launch: Launch, process: RunningProcess | None) -> None:
    """Until the replica with these metrics is up; the last thing that a server opens."""
    at = urlsplit(url)
    wait_until(
        lambda: get_status(f"{at.scheme}://{at.netloc}", at.path) == 200,
        deadline_s=launch.ready_within_s,
        process=process,
        what=f"{launch.label}: the replica with metrics at {url} is not up",
    )


def _thread_warning(label: str, placed: Model, placement: Placement, setting: Setting) -> str:
    """More inference threads than CPUs are allowed, but likely to mislead."""
    count, product = placed.config.threads, "instances x intra-op"
    if setting:
        room = Room(len(placement.cpus), placed.config)
        count = threads({**default_setting(label, room), **setting})
        product = "of all processes and instances"
    cpus = min(placement.usable_cpus, len(placement.cpus))
    return f"{count} inference threads ({product}) on {cpus} usable CPUs" if count > cpus else ""
