"""``infersweep profile-model``: where the time of a model goes, in the runtime and in a server."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.cli.display import SearchDisplay
from loadtest.cli.measure import default_folder
from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    ClientCpusOption,
    ModelOption,
    RepositoryOption,
    ServerCpusOption,
    TimeoutOption,
    interrupt_on_sigterm,
    parse_backends,
    require_positive,
    split_of,
)
from loadtest.cli.soak import parse_time
from loadtest.engine.build import build
from loadtest.folder import ResultsFolder
from loadtest.manifest import describe_run
from loadtest.profiling.page import write_page
from loadtest.profiling.record import ModelProfile, Operator
from loadtest.profiling.run import Profiling
from loadtest.profiling.server import SampledLoad
from loadtest.profiling.wording import observer_text, precision_text
from loadtest.results import Settings
from loadtest.rig import Rig
from loadtest.rounding import four_digits
from loadtest.runner import Fleet
from serving.deployment import fetch_needed
from serving.errors import INTERRUPTED_EXIT_CODE, LoadError, ResultsError, UsageError
from serving.host import cpu_budget
from serving.models.repository import Model, find_model
from serving.models.zoo.build import ensure_built

NAME = "profile-model"
EXAMPLES = (
    "Examples: `infersweep profile-model --model image_classifier` · "
    "`infersweep profile-model --model text_encoder --backend fastapi --duration 20s`"
)
_BUSY = 2
"""Users for each CPU of the server: one is answered while another waits."""
_MOST_ROWS = 6


def run(
    model: ModelOption = "image_classifier",
    backend: Annotated[str, typer.Option(help="one that is started here")] = "onnxruntime",
    duration: Annotated[str, typer.Option(help="of each part, such as 10s")] = "10s",
    users: Annotated[
        int | None, typer.Option(help="of the closed loop [default: 2 per server CPU]", min=1)
    ] = None,
    rate: Annotated[int, typer.Option(help="stacks read per second", min=1, max=1000)] = 50,
    timeout: TimeoutOption = 10.0,
    server_cpus: ServerCpusOption = None,
    client_cpus: ClientCpusOption = None,
    out: Annotated[Path | None, typer.Option(help="a new results folder")] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Say where the time goes: operators in ONNX Runtime and PyTorch, a server's stacks under load.

    The folder has a page with a flame graph and every profiler's own files. For capacity that a
    plan can be made from, see `infersweep profile`.
    """
    labels = parse_backends(backend)
    if len(labels) > 1:
        raise UsageError(f"--backend {backend} names {len(labels)}", hint="Profile them in turn.")
    if labels[0].partition(":")[0] == "remote":
        raise UsageError(
            "a remote server's processes cannot be read from here",
            hint="Run profile-model on its machine, with a backend that is started there.",
        )
    duration_s = parse_time(duration, "--duration")
    found = find_model(model, repository)
    split = split_of(server_cpus, client_cpus)
    count = users or _BUSY * len(split.server)
    settings = Settings(
        model=model,
        backends=labels,
        levels=(float(count),),
        duration_s=duration_s,
        repeats=1,
        timeout_s=require_positive(timeout, "--timeout"),
        seed=1,
        connections=max(1024, count),
        server_cpus=split.server,
        client_cpus=split.client,
    )
    folder = ResultsFolder(out or default_folder(f"profile-model-{model}"))
    if folder.path.exists() and (not folder.path.is_dir() or any(folder.path.iterdir())):
        raise ResultsError(f"{folder.path} is not empty", hint="Choose another --out.")
    with interrupt_on_sigterm():
        return _profile(Console(), found, settings, folder, SampledLoad(count, rate))


def _profile(
    console: Console, model: Model, settings: Settings, folder: ResultsFolder, load: SampledLoad
) -> int:
    build()
    ensure_built(model, console.print)
    fetch_needed(settings.backends, console.print)
    folder.write_manifest(describe_run(model, settings, shlex.join(["infersweep", *sys.argv[1:]])))
    usable = cpu_budget().usable
    # Everything this process does from here on happens on the client's side.
    os.sched_setaffinity(0, settings.client_cpus)
    with SearchDisplay(console) as display:
        fleet = Fleet(cpus=settings.client_cpus)
        rig = Rig(settings, model, usable, folder, display, fleet, drops_page_cache=False)
        profiling = Profiling(rig, load)
        profiling.run()
    record = profiling.write()
    page = write_page(folder, record)
    show(console, record)
    console.print(f"Page: {page}", highlight=False, markup=False)
    if not profiling.complete:
        return INTERRUPTED_EXIT_CODE
    if not profiling.found:
        raise next(
            iter(profiling.failures),
            LoadError("nothing could be profiled", hint=f"The reasons are in {page}."),
        )
    return 0


def show(console: Console, record: ModelProfile) -> None:
    """The operators and purposes that take most, and the answer."""
    if record.runtime is not None:
        one = record.runtime
        title = f"ONNX Runtime: {four_digits(one.session_ms)} ms a run"
        console.print(_table(title, one.by_type, one.runs))
    if record.torch is not None:
        title = f"PyTorch: {four_digits(record.torch.run_ms)} ms a run, with the profiler"
        console.print(_table(title, record.torch.by_type, record.torch.runs))
    if record.server is not None:
        server = record.server
        title = f"{escape(server.backend)}: {server.busy:,} busy samples"
        table = Table(box=box.HORIZONTALS, title=title)
        table.add_column("for")
        table.add_column("share", justify="right")
        for group in server.groups:
            table.add_row(group.name, f"{group.share:.1%}")
        console.print(table)
        console.print(precision_text(server), observer_text(server.observer), highlight=False)
    for part, why in record.missing.items():
        console.print(f"not profiled: {part}: {why}", style="dim", highlight=False, markup=False)
    console.print(record.sentence, style="bold", highlight=False, markup=False)


def _table(title: str, operators: tuple[Operator, ...], runs: int) -> Table:
    table = Table(box=box.HORIZONTALS, title=title)
    table.add_column("operator")
    for name in ("share", "ms a run", "mean µs"):
        table.add_column(name, justify="right")
    for one in operators[:_MOST_ROWS]:
        each = four_digits(one.total_ms / runs)
        table.add_row(escape(one.op_type), f"{one.share:.1%}", each, four_digits(one.mean_us))
    return table
