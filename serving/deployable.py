"""What a user deploys: a placed repository, and the commands that serve it without infersweep."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from serving.backends.fastapi.gunicorn_hooks import FOLDER_VARIABLE
from serving.backends.fastapi.launch import compiler_environment, graceful_timeout_s
from serving.backends.fastapi.settings import ENVIRONMENT_PREFIX, Settings
from serving.backends.registry import resolve
from serving.deployment import Placement, place_for
from serving.errors import UsageError
from serving.knobs import Room, Setting, default_setting, environment
from serving.models.repository import Model

REPOSITORY = "model_repository"
GUNICORN_FILE = "gunicorn.conf.py"
_PORT = 8000
_GUNICORN = '''\
"""How gunicorn serves {model}: `gunicorn -c {file}`, where infersweep is installed."""

from pathlib import Path

from serving.backends.fastapi.gunicorn_hooks import (
    child_exit,
    on_exit,
    on_starting,
    post_fork,
    pre_fork,
    when_ready,
)

_HERE = Path(__file__).resolve().parent

wsgi_app = "serving.backends.fastapi.app:create_app()"
bind = {bind!r}
workers = {workers}
worker_class = {worker_class!r}
graceful_timeout = {graceful_timeout_s}
keepalive = 75
control_socket_disable = True
raw_env = [
{environment}
]
'''


@dataclass(frozen=True)
class Deployable:
    """What was written, and how it is served.

    Attributes:
        folder: where the ``commands`` are run.
        files: what was written there, apart from links to the model's versions.
        commands: shell commands, one for each process that is to be kept running.
        environment: variables that the commands set.
    """

    folder: Path
    files: tuple[Path, ...]
    commands: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True)
class _Asked:
    """A placed model, the full setting of what else there is to turn, and the addresses."""

    option: str
    model: Model
    setting: Setting
    folder: Path
    host: str
    port: int
    slo_ms: float | None

    @property
    def replicas(self) -> int:
        return int(self.setting.get("replicas", "1"))

    def more_ports(self, count: int) -> tuple[int, ...]:
        """Those that follow ``port``."""
        return tuple(range(self.port + 1, self.port + 1 + count))


def write_deployable(
    label: str, model: Model, setting: Setting, placement: Placement, folder: Path
) -> Deployable:
    """Write into ``folder`` what serves ``model`` with ``setting``; starts nothing.

    The version folders are links to those of ``model``. Servers listen at the placement's port
    (8000), and for gRPC and metrics at those that follow.

    Raises:
        UsageError: there is nothing to deploy for this backend, or the setting cannot be.
    """
    _, option = resolve(label)
    commands_of = _COMMANDS.get(label.partition(":")[0])
    if commands_of is None:
        raise UsageError(f"{label} is not deployed", hint=f"Name one of {', '.join(_COMMANDS)}.")
    folder.mkdir(parents=True, exist_ok=True)
    placed, given = place_for(
        label, model, replace(placement, setting=setting), folder / REPOSITORY
    )
    full = {**default_setting(label, Room(len(placement.cpus), model.config)), **given}
    asked = _Asked(
        option=option,
        model=placed,
        setting=full,
        folder=folder,
        host=placement.host,
        port=placement.port or _PORT,
        slo_ms=placement.slo_ms,
    )
    files, argvs = commands_of(asked)
    variables = environment(given)
    words = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return Deployable(
        folder,
        (placed.folder / "config.pbtxt", *files),
        tuple(" ".join((*words, shlex.join(argv))) for argv in argvs),
        MappingProxyType(variables),
    )


Written = tuple[tuple[Path, ...], tuple[tuple[str, ...], ...]]
"""Files and commands."""


def _triton(asked: _Asked) -> Written:
    grpc_port, *metrics_ports = asked.more_ports(1 + asked.replicas)
    shared = ("--reuse-http-port=true", "--reuse-grpc-port=true") if asked.replicas > 1 else ()
    return (), tuple(
        (
            *("tritonserver", f"--model-repository={REPOSITORY}"),
            "--disable-auto-complete-config",
            *(f"--http-address={asked.host}", f"--http-port={asked.port}"),
            f"--http-thread-count={asked.setting['http_threads']}",
            *(f"--grpc-address={asked.host}", f"--grpc-port={grpc_port}"),
            *(f"--metrics-address={asked.host}", f"--metrics-port={metrics_port}"),
            *shared,
        )
        for metrics_port in metrics_ports
    )


def _onnxruntime(asked: _Asked) -> Written:
    grpc_port, *own_ports = asked.more_ports(1 + asked.replicas)
    argv = (
        *("python", "-m", "serving.backends.onnxruntime"),
        *("--repository", REPOSITORY, "--model", asked.model.name),
        *("--host", asked.host, "--port", str(asked.port), "--grpc-port", str(grpc_port)),
        *(() if asked.slo_ms is None else ("--slo-ms", str(asked.slo_ms))),
    )
    if asked.replicas == 1:
        return (), (argv,)
    return (), tuple((*argv, "--reuse-port", "--metrics-port", str(port)) for port in own_ports)


def _fastapi(asked: _Asked) -> Written:
    engine = asked.option or "onnxruntime"
    (metrics_port,) = asked.more_ports(1)
    settings = Settings(
        repository=Path(REPOSITORY),
        model=asked.model.name,
        engine=engine,
        inference_threads=int(asked.setting["worker_threads"]),
        metrics_port=metrics_port,
        metrics_host=asked.host,
        slo_ms=asked.slo_ms,
    )
    variables = {
        **settings.to_environment(),
        **compiler_environment(engine),
        FOLDER_VARIABLE: "metrics",
    }
    text = _GUNICORN.format(
        model=asked.model.name,
        file=GUNICORN_FILE,
        bind=f"{asked.host}:{asked.port}",
        workers=asked.model.config.instances,
        worker_class=asked.setting["worker_class"],
        graceful_timeout_s=graceful_timeout_s(asked.setting["worker_class"]),
        environment="\n".join(f"    {_line(*item)}," for item in variables.items()),
    )
    file = asked.folder / GUNICORN_FILE
    file.write_text(text, encoding="utf-8")
    return (file,), (("gunicorn", "-c", GUNICORN_FILE),)


def _line(name: str, value: str) -> str:
    """A variable as Python; folders are found from where the file lies."""
    if name in (FOLDER_VARIABLE, f"{ENVIRONMENT_PREFIX}REPOSITORY"):
        return f'f"{name}={{_HERE / {value!r}}}"'
    return json.dumps(f"{name}={value}")


_COMMANDS: Mapping[str, Callable[[_Asked], Written]] = {
    "triton": _triton,
    "onnxruntime": _onnxruntime,
    "fastapi": _fastapi,
}
