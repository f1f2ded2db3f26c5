"""``infersweep serve``: one backend in the foreground, as ``compare`` would start it."""

from __future__ import annotations

import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    ModelOption,
    RepositoryOption,
    SloOption,
    interrupt_on_sigterm,
    parse_slo,
)
from loadtest.targets import announced
from serving.backends.base import Launch
from serving.backends.registry import resolve
from serving.deployment import Placement, fetch_needed, running
from serving.errors import ServerError, UsageError
from serving.host import cpu_budget, parse_cpus
from serving.knobs import parse_setting
from serving.models.repository import find_model
from serving.models.zoo.build import ensure_built
from serving.process import require_free_port

NAME = "serve"
_POLL_S = 0.2
EXAMPLES = (
    "Examples: `infersweep serve --backend triton --model image_classifier --port 8000` · "
    "`infersweep serve --backend fastapi:torch --workers 2 --cpus 0-1` · "
    "`infersweep serve --backend onnxruntime --set replicas=2 --set queue_delay_us=500`"
)


def run(
    backend: Annotated[str, typer.Option(help="triton, onnxruntime, fastapi, fastapi:torch, null")],
    model: ModelOption = "image_classifier",
    host: Annotated[str, typer.Option(help="address to bind to")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="HTTP port", min=1, max=65535)] = 8000,
    cpus: Annotated[str | None, typer.Option(help="such as 0-2 [default: all usable]")] = None,
    workers: Annotated[
        int | None, typer.Option(help="instances or workers [default: one per CPU]", min=1)
    ] = None,
    threads: Annotated[int, typer.Option(help="intra-op threads of each", min=1)] = 1,
    knobs: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="turn a knob, see docs/tuning-knobs.md"),
    ] = None,
    slo: SloOption = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Serve one model on one backend until Ctrl-C."""
    console = Console()
    found = find_model(model, repository)
    if backend.partition(":")[0] == "remote":
        raise UsageError("a remote server is not ours to start", hint="Name another backend.")
    resolve(backend)
    setting = parse_setting(backend, knobs or ())
    budget = cpu_budget()
    ensure_built(found, console.print)
    fetch_needed([backend], console.print)
    placement = Placement(
        cpus=parse_cpus(cpus) if cpus else budget.ids[: budget.usable],
        usable_cpus=budget.usable,
        instances=workers,
        intra_op_threads=threads,
        host=host,
        port=require_free_port(port, host),
        slo_ms=parse_slo(slo),
        setting=setting,
    )
    with interrupt_on_sigterm(), tempfile.TemporaryDirectory(prefix="infersweep-") as folder:
        work = Path(folder)
        repository_there = work / "model_repository"
        with (
            running(backend, found, placement, repository=repository_there, logs=work) as server,
            ExitStack() as targets,
        ):
            for url in server.launch.metrics_urls:
                targets.enter_context(announced(url, _labels(backend), console.print))
            _tell(server.launch, console)
            console.print(
                f"{backend} serves {model} at {server.url}; Ctrl-C stops it", markup=False
            )
            while server.ended is None:
                time.sleep(_POLL_S)
            log = server.process.log_tail() if server.process else ""
            raise ServerError(f"{backend} {server.ended}", hint=f"Its log ends with:\n{log}")


def _tell(launch: Launch, console: Console) -> None:
    for name, fact in launch.facts.items():
        console.print(f"{name}: {fact}", highlight=False, markup=False)
    for warning in launch.warnings:
        console.print(f"warning: {warning}", style="yellow", markup=False)
    for url in launch.metrics_urls:
        console.print(f"metrics: {url}", markup=False)


def _labels(backend: str) -> dict[str, str]:
    return {"job": "server", "run": "serve", "backend": backend}
