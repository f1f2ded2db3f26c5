"""Servers that experiments start themselves, in ways that no backend and no knob offers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path

from loadtest.payload import Payload
from loadtest.playbook.experiment import Lab
from loadtest.playbook.served import Own, OwnServer
from serving.backends.base import Launch, ServePlan
from serving.backends.fastapi.settings import Settings
from serving.deployment import Placement, place_for
from serving.models.repository import Model
from serving.models.samples import samples_for
from serving.process import RunningProcess, free_port
from serving.protocol import Tensor, encode_request
from serving.providers import runtime_version
from serving.readiness import reach_every_worker, wait_ready

FASTAPI = "serving.backends.fastapi.app:create_app()"
FLASK = "loadtest.playbook.servers.flask_app:create_app()"
ON_THE_LOOP = "loadtest.playbook.servers.on_the_loop:create_app()"
_WORKERS_WITHIN_S = 60.0


def launched(backend: str, launch_of: Callable[[ServePlan], Launch]) -> Own:
    """A model placed as for ``backend``, and the server that ``launch_of`` makes of it."""

    @contextmanager
    def start(lab: Lab, model: Model, folder: Path) -> Iterator[OwnServer]:
        placement = Placement(lab.server_cpus, lab.usable_cpus)
        placed, _ = place_for(backend, model, placement, folder / "repository")
        plan = ServePlan(
            label=backend,
            option="",
            model=placed,
            cpus=lab.server_cpus,
            port=free_port(),
            work_folder=folder,
        )
        with _up(launch_of(plan), plan) as server:
            yield server

    return start


def on_gunicorn(application: str, *options: str) -> Own:
    """An application of Python on gunicorn, one worker for each CPU, without metrics.

    ``options`` are gunicorn's, such as the class of its workers. The application finds its model as
    the FastAPI baseline does.
    """

    def launch_of(plan: ServePlan) -> Launch:
        workers = plan.model.config.instances
        settings = Settings(
            repository=plan.model.root,
            model=plan.model.name,
            engine="onnxruntime",
            inference_threads=1,
            metrics_port=None,
            slo_ms=None,
        )
        return Launch(
            label=application,
            url=plan.url,
            argv=(
                *(sys.executable, "-m", "gunicorn", application),
                *("--workers", str(workers), "--bind", f"{plan.host}:{plan.port}"),
                *("--keep-alive", "75", "--graceful-timeout", "10", "--no-control-socket"),
                *options,
            ),
            env=settings.to_environment(),
            worker_count=workers,
            facts={
                "server": f"gunicorn {version('gunicorn')}, {_framework(application)}",
                "engine": f"ONNX Runtime {runtime_version()}",
                "workers": str(workers),
            },
        )

    return launched("fastapi", launch_of)


def _framework(application: str) -> str:
    name = "flask" if application == FLASK else "fastapi"
    return f"{name} {version(name)}"


@contextmanager
def _up(launch: Launch, plan: ServePlan) -> Iterator[OwnServer]:
    """Ready, and every worker has answered once; its whole family is stopped on leaving."""
    log = plan.work_folder / "own.log"
    with RunningProcess(launch.argv, cpus=plan.cpus, env=launch.env, log=log) as process:
        waited_s = wait_ready(
            launch.url,
            plan.model.name,
            deadline_s=launch.ready_within_s,
            process=process,
            label=launch.label,
        )
        first = _request(plan.model)
        reach_every_worker(
            launch.url,
            plan.model.name,
            first.body,
            first.headers,
            count=launch.worker_count,
            deadline_s=_WORKERS_WITHIN_S,
        )
        yield OwnServer(launch.url, process, waited_s, launch.facts)


def _request(model: Model) -> Payload:
    inputs = samples_for(model)[0].inputs
    tensors = [Tensor.of(spec.name, inputs[spec.name]) for spec in model.config.inputs]
    body, length = encode_request(tensors)
    return Payload(body, length, {})
