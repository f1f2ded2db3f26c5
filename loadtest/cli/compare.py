"""``infersweep compare``: the same model on several backends, one verdict, one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.measure import Run, measure
from loadtest.cli.options import (
    DEFAULT_BACKENDS,
    DEFAULT_REPOSITORY,
    MetricsPortOption,
    ModelOption,
    RepositoryOption,
    SloOption,
    parse_backends,
    parse_counts,
    parse_slo,
    require_positive,
    split_of,
)
from loadtest.results import Settings
from loadtest.runner import Fleet
from serving.host import cpu_budget
from serving.models.repository import find_model

NAME = "compare"
EXAMPLES = (
    "Examples: `infersweep compare --model image_classifier` · "
    "`infersweep compare --model face_detector --backends triton,onnxruntime --quick --out X` · "
    "`infersweep compare --backends onnxruntime,remote:http://127.0.0.1:8000`"
)
QUICK_CONCURRENCY, CONCURRENCY = "1,4", "1,2,4,8"
QUICK_DURATION_S, DURATION_S = 2.0, 4.0


def run(
    model: ModelOption = "image_classifier",
    backends: Annotated[
        str, typer.Option(help="comma-separated; fastapi:torch and remote:URL are possible")
    ] = DEFAULT_BACKENDS,
    concurrency: Annotated[
        str | None, typer.Option(help="users at once [default: 1,2,4,8]")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="seconds of one measured window [default: 4]")
    ] = None,
    repeats: Annotated[int, typer.Option(help="windows per backend and concurrency")] = 3,
    timeout: Annotated[float, typer.Option(help="seconds before a request is given up")] = 10.0,
    seed: Annotated[int, typer.Option(help="order of trials and of inputs")] = 1,
    server_cpus: Annotated[
        str | None, typer.Option(help="such as 0-2 [default: all but one]")
    ] = None,
    client_cpus: Annotated[str | None, typer.Option(help="such as 3 [default: the last]")] = None,
    out: Annotated[
        Path | None, typer.Option(help="results folder; an unfinished run there is resumed")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="concurrency 1,4 and windows of 2 s")
    ] = False,
    slo: SloOption = None,
    metrics_port: MetricsPortOption = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Measure one model on several backends and say which serves most."""
    found = find_model(model, repository)
    labels = parse_backends(backends)
    split = split_of(server_cpus, client_cpus)
    levels = parse_counts(
        concurrency or (QUICK_CONCURRENCY if quick else CONCURRENCY), "--concurrency"
    )
    settings = Settings(
        model=model,
        backends=labels,
        levels=tuple(float(level) for level in levels),
        duration_s=require_positive(
            (QUICK_DURATION_S if quick else DURATION_S) if duration is None else duration,
            "--duration",
        ),
        repeats=int(require_positive(repeats, "--repeats")),
        timeout_s=require_positive(timeout, "--timeout"),
        seed=seed,
        slo_ms=parse_slo(slo),
        server_cpus=split.server,
        client_cpus=split.client,
    )
    fleet = Fleet(cpus=split.client)
    asked = Run(found, settings, fleet, cpu_budget().usable, out, metrics_port=metrics_port)
    return measure(Console(), asked)
