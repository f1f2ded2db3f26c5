"""What a backend is: something that can say how to launch a server for one model."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from serving.models.repository import Model
from serving.process import free_port

_NOTHING: Mapping[str, str] = MappingProxyType({})
_REPLICAS = Path(__file__).parents[1] / "replicas.py"


@dataclass(frozen=True)
class ServePlan:
    """What is to be served, and on what.

    Attributes:
        label: the backend as the user wrote it, such as ``fastapi:torch``.
        option: what stands behind the colon of the label; an engine, a URL, or empty.
        model: the model, in a repository whose ``config.pbtxt`` states instances and threads.
        cpus: the CPUs that the server is pinned to.
        port: HTTP port; a free one has been chosen where the user named none.
        slo_ms: the response time objective that the server's metrics count by.
        work_folder: an existing folder where the backend may write what it needs for this launch.
        setting: knob to value, for those that are not at their default; what belongs into
            ``config.pbtxt`` stands there already.
        env: variables that the server is to have beside the backend's own.
    """

    label: str
    option: str
    model: Model
    cpus: tuple[int, ...]
    port: int
    work_folder: Path
    host: str = "127.0.0.1"
    slo_ms: float | None = None
    setting: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)

    @property
    def replicas(self) -> int:
        """Server processes behind the one address."""
        return int(self.setting.get("replicas", "1"))

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def more_ports(self, count: int) -> tuple[int, ...]:
        """Free ports beside ``port``; nothing holds a free port, so one may be found twice."""
        ports = {self.port: None}
        while len(ports) <= count:
            ports[free_port(self.host)] = None
        return tuple(ports)[1:]


@dataclass(frozen=True)
class Launch:
    """How to start one server, or where one already runs.

    Attributes:
        argv: the command; empty when the server is not ours to start.
        env: variables added to this process's environment.
        worker_count: processes that answer requests; warm-up waits until each has answered.
        facts: what serves and how, for the record: versions, engine, provider, threads.
        warnings: settings that are allowed but likely to mislead.
        ready_within_s: deadline for readiness.
        metrics_url: where the server's metrics are; ``None`` where there are none, and where each
            replica has its own.
        replica_metrics_urls: the metrics of each replica; they are to be added up. What is asked of
            ``url`` is answered by any one of them.
        hidden: why the server's processes cannot be seen from here; empty where they can.
    """

    label: str
    url: str
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    worker_count: int = 1
    facts: Mapping[str, str] = field(default_factory=lambda: _NOTHING)
    warnings: tuple[str, ...] = ()
    metrics_url: str | None = None
    grpc_url: str | None = None
    ready_within_s: float = 60.0
    hidden: str = ""
    replica_metrics_urls: tuple[str, ...] = ()

    @property
    def metrics_urls(self) -> tuple[str, ...]:
        """Everything to scrape, to see the whole server."""
        return (self.metrics_url,) if self.metrics_url else self.replica_metrics_urls


def replicated(ports: Sequence[int]) -> tuple[str, ...]:
    """The part of a command that stands before the program, to run one copy for each port.

    ``{port}`` in the program's arguments stands for the copy's own port.
    """
    return (sys.executable, "-I", "-S", str(_REPLICAS), ",".join(map(str, ports)))


class Backend(Protocol):
    """One way to serve a model.

    Attributes:
        name: the word used on the command line.
        summary: one line for listings.
        options: what may stand behind ``name:``, each with its meaning; empty when nothing may.
        answers: whether its output is the model's. ``null`` answers at once with zeros: it is
            exempt from parity and never ranked.
    """

    @property
    def name(self) -> str: ...

    @property
    def summary(self) -> str: ...

    @property
    def options(self) -> Mapping[str, str]: ...

    @property
    def answers(self) -> bool: ...

    def launch(self, plan: ServePlan) -> Launch:
        """Describe the launch; starts nothing.

        Raises:
            MachineError: the machine lacks what this backend needs.
            ModelError: the backend cannot serve this model.
            UsageError: the option is unknown.
        """
        ...
