"""From a label such as ``fastapi:torch`` to a server that answers: plan, start, wait, stop."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

from serving.backends import triton
from serving.backends.base import Launch, ServePlan
from serving.backends.registry import resolve
from serving.backends.triton.locate import Source, find_launcher
from serving.backends.triton.wheel import ensure_triton
from serving.errors import ServerError
from serving.models.repository import Model, place
from serving.process import RunningProcess, free_port
from serving.readiness import OPEN, Access, is_grpc, wait_ready


@dataclass(frozen=True)
class Placement:
    """What a server is given.

    Attributes:
        instances: workers or model instances; one per CPU when ``None``, on a GPU as many as the
            configuration says.
        usable_cpus: what the machine has, to warn against more threads than that.
        slo_ms: the response time objective that the server's metrics count by.
    """

    cpus: tuple[int, ...]
    usable_cpus: int
    instances: int | None = None
    intra_op_threads: int = 1
    host: str = "127.0.0.1"
    port: int | None = None
    slo_ms: float | None = None


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
        InfersweepError: as the backend's ``launch`` says.
    """
    backend, option = resolve(label)
    execution = model.config.execution
    own = execution.instances // max(1, len(set(execution.devices)))
    instances = placement.instances or (own if execution.kind == "gpu" else len(placement.cpus))
    placed = place(
        model, repository, instances=instances, intra_op_threads=placement.intra_op_threads
    )
    plan = ServePlan(
        label=label,
        option=option,
        model=placed,
        cpus=placement.cpus,
        port=placement.port or free_port(placement.host),
        work_folder=work_folder,
        host=placement.host,
        slo_ms=placement.slo_ms,
    )
    launch = backend.launch(plan)
    warning = _thread_warning(placed.config.threads, placement)
    if warning and launch.argv:
        launch = replace(launch, warnings=(*launch.warnings, warning))
    return launch, placed


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


def _thread_warning(threads: int, placement: Placement) -> str:
    cpus = min(placement.usable_cpus, len(placement.cpus))
    if threads <= cpus:
        return ""
    return f"{threads} inference threads (instances x intra-op) on {cpus} usable CPUs"
