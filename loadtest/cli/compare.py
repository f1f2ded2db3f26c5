"""``infersweep compare``: the same model on several backends, one verdict, one page."""

from __future__ import annotations

import os
import shlex
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.display import LiveDisplay
from loadtest.cli.options import (
    DEFAULT_BACKENDS,
    DEFAULT_REPOSITORY,
    ModelOption,
    RepositoryOption,
    interrupt_on_sigterm,
    parse_backends,
    parse_counts,
    require_positive,
)
from loadtest.manifest import describe_run
from loadtest.report import write_report
from loadtest.report.terminal import summary_table
from loadtest.results import ResultsFolder, Settings
from loadtest.summary import write_summary
from loadtest.sweep import Sweep
from serving.deployment import fetch_needed
from serving.errors import INTERRUPTED_EXIT_CODE, LoadError, ResultsError
from serving.host import cpu_budget, parse_cpus, split_cpus
from serving.models.repository import Model, find_model
from serving.models.zoo.build import ensure_built

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
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Measure one model on several backends and say which serves most."""
    console = Console()
    found = find_model(model, repository)
    labels = parse_backends(backends)
    budget = cpu_budget()
    split = split_cpus(
        budget,
        parse_cpus(server_cpus) if server_cpus else None,
        parse_cpus(client_cpus) if client_cpus else None,
    )
    settings = Settings(
        model=model,
        backends=labels,
        concurrency=parse_counts(
            concurrency or (QUICK_CONCURRENCY if quick else CONCURRENCY), "--concurrency"
        ),
        duration_s=require_positive(
            (QUICK_DURATION_S if quick else DURATION_S) if duration is None else duration,
            "--duration",
        ),
        repeats=int(require_positive(repeats, "--repeats")),
        timeout_s=require_positive(timeout, "--timeout"),
        seed=seed,
        server_cpus=split.server,
        client_cpus=split.client,
    )
    with interrupt_on_sigterm():
        return _compare(console, found, settings, budget.usable, out)


def _compare(
    console: Console, model: Model, settings: Settings, usable_cpus: int, out: Path | None
) -> int:
    ensure_built(model, console.print)
    fetch_needed(settings.backends, console.print)
    folder = ResultsFolder(out or _default_folder(model.name))
    _open(folder, model, settings, console)
    # Everything this process does from here on happens on the client's side.
    os.sched_setaffinity(0, settings.client_cpus)
    interrupted = False
    with LiveDisplay(
        console, done=len(folder.read_trials()), planned=settings.planned_trials
    ) as display:
        try:
            Sweep(settings, model, usable_cpus, folder, display).run()
        except KeyboardInterrupt:
            interrupted = True
    summary = write_summary(folder)
    page = write_report(folder)
    console.print(summary_table(summary))
    console.print(summary.ranking.sentence, style="bold", highlight=False)
    console.print(f"Report: {page}", highlight=False)
    if interrupted:
        console.print(f"Interrupted. Resume with: {_resume_command(folder)}", highlight=False)
        return INTERRUPTED_EXIT_CODE
    if not any(p.verdict == "VALID" for b in summary.backends for p in b.points):
        raise LoadError("no point of this run is VALID", hint=f"The reasons are in {page}.")
    return 0


def _default_folder(model: str) -> Path:
    return Path("results") / f"{datetime.now():%Y%m%d-%H%M%S}-{model}"


def _resume_command(folder: ResultsFolder) -> str:
    command = shlex.split(folder.read_manifest().command)
    if "--out" not in command:
        command += ["--out", str(folder.path)]
    return shlex.join(command)


def _open(folder: ResultsFolder, model: Model, settings: Settings, console: Console) -> None:
    """Write the manifest, or find the one of the run that is resumed to be the same."""
    command = shlex.join(["infersweep", *sys.argv[1:]])
    manifest = describe_run(model, settings, command)
    if not folder.exists:
        if folder.path.exists() and any(folder.path.iterdir()):
            raise ResultsError(
                f"{folder.path} holds files that are no results of infersweep",
                hint="Choose another --out.",
            )
        folder.write_manifest(manifest)
        return
    known = folder.read_manifest()
    if known.settings != settings or known.model_sha256 != manifest.model_sha256:
        raise ResultsError(
            f"{folder.path} was measured with other settings or another model file",
            hint=f"Repeat its own command ({known.command}) or choose another --out.",
        )
    console.print(f"Resuming {folder.path}", highlight=False)
