"""``infersweep playbook``: which tuning tips hold for this model on this machine."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.display import Display
from loadtest.cli.measure import default_folder, open_folder
from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    ClientCpusOption,
    RepositoryOption,
    ServerCpusOption,
    interrupt_on_sigterm,
    split_of,
)
from loadtest.engine.build import build
from loadtest.folder import ResultsFolder
from loadtest.manifest import describe_run
from loadtest.playbook.book import Book
from loadtest.playbook.catalogue import catalogue, chosen
from loadtest.playbook.experiment import FULL, QUICK, Experiment, Lab, Pace
from loadtest.playbook.judging import usual_text
from loadtest.playbook.loader import Load, loader, no_load
from loadtest.playbook.markdown import to_markdown
from loadtest.playbook.page import write_page
from loadtest.playbook.record import ExperimentRecord, Playbook
from loadtest.playbook.terminal import line, show, show_list
from loadtest.results import Settings
from loadtest.rig import RigListener
from serving.errors import INTERRUPTED_EXIT_CODE, LoadError
from serving.host import CpuSplit, cpu_budget
from serving.models.repository import Model, find_model
from serving.models.zoo.build import ensure_built

NAME = "playbook"
HELP = "Measure which tuning tips hold for a model on this machine, each with a verdict."

EXAMPLES = (
    "Examples: `infersweep playbook --model image_classifier` · "
    "`infersweep playbook --model mine --only fp16,int8-dynamic --quick` · "
    "`infersweep playbook list --model mine`"
)

app = typer.Typer(name=NAME, invoke_without_command=True, help=HELP, epilog=EXAMPLES)
ModelOption = Annotated[str, typer.Option(help="name of a model in the repository")]


@app.callback()
def run(
    context: typer.Context,
    model: ModelOption = "image_classifier",
    only: Annotated[
        str | None, typer.Option(help="names, separated by commas; measured again where they were")
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="one start of each arm and short windows")
    ] = False,
    seed: Annotated[int, typer.Option(help="order of arms and of inputs")] = 1,
    server_cpus: ServerCpusOption = None,
    client_cpus: ClientCpusOption = None,
    out: Annotated[
        Path | None, typer.Option(help="results folder; one that is there goes on")
    ] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int | None:
    """Turn each tip into a small experiment: baseline and change in turns, everything else equal.

    A tip holds, holds in part, makes no difference, does the opposite, breaks accuracy, or cannot
    be measured here.
    """
    if context.invoked_subcommand:
        return None
    experiments = chosen(filter(None, (only or "").split(",")))
    found = find_model(model, repository)
    split = split_of(server_cpus, client_cpus)
    console = Console()
    pace = QUICK if quick else FULL
    settings = Settings(
        model=model,
        backends=("playbook",),
        levels=(),
        duration_s=pace.window_s,
        repeats=pace.starts * pace.windows,
        timeout_s=10.0,
        seed=seed,
        server_cpus=split.server,
        client_cpus=split.client,
    )
    build()
    ensure_built(found, console.print)
    folder = ResultsFolder(out or default_folder(f"playbook-{model}"))
    told = {"--model": model, "--server-cpus": server_cpus, "--client-cpus": client_cpus}
    told |= {"--seed": str(seed) if seed != 1 else None}
    told |= {"--repository": str(repository) if repository != DEFAULT_REPOSITORY else None}
    words = [word for option, value in told.items() if value for word in (option, value)]
    command = shlex.join(["infersweep", NAME, *words, *(["--quick"] if quick else [])])
    manifest = describe_run(found, settings, command)
    open_folder(folder, manifest, console)
    os.sched_setaffinity(0, split.client)
    with (
        Display(console, total=None) as display,
        interrupt_on_sigterm(),
        loader(split.client, folder.logs / "loader.log") as load,
    ):
        lab = _lab(found, folder.path, split, pace, display, load, seed)
        book = Book(lab, folder.read_manifest(), lambda record: console.print(line(record)))
        interrupted = _measure(book, experiments, named=only is not None)
    return _conclude(console, book, folder, interrupted=interrupted)


def _lab(
    model: Model,
    folder: Path,
    split: CpuSplit,
    pace: Pace,
    listener: RigListener,
    load: Load,
    seed: int = 1,
) -> Lab:
    return Lab(
        model=model,
        folder=folder,
        shared=folder,
        server_cpus=split.server,
        client_cpus=split.client,
        usable_cpus=cpu_budget().usable,
        pace=pace,
        listener=listener,
        load=load,
        seed=seed,
    )


def _measure(book: Book, experiments: tuple[Experiment, ...], *, named: bool) -> bool:
    """Whether it was interrupted; what was measured before is on disk."""
    try:
        book.measure(experiments, again=named)
        book.combine(tuple(catalogue().values()))
    except KeyboardInterrupt:
        return True
    return False


def _conclude(console: Console, book: Book, folder: ResultsFolder, *, interrupted: bool) -> int:
    playbook = book.conclude(tuple(catalogue().values()))
    page = write_page(folder.path, playbook)
    folder.write_page("playbook.md", to_markdown(playbook))
    show(console, playbook)
    console.print(f"Page: {page}", highlight=False)
    if interrupted:
        console.print(
            f"Interrupted. Go on with: {playbook.command} --out {folder.path}", highlight=False
        )
        return INTERRUPTED_EXIT_CODE
    _require_something(playbook)
    return 0


def _require_something(playbook: Playbook) -> None:
    """Raises LoadError when every experiment that was tried broke."""
    tried = [record for record in playbook.experiments if not _is_out_of_reach(record)]
    if tried and all(record.failed for record in tried):
        raise LoadError(
            f"no experiment could be measured: {tried[0].missing}", hint="The page has the rest."
        )


def _is_out_of_reach(record: ExperimentRecord) -> bool:
    return bool(record.missing) and not record.failed


@app.command("list")
def list_all(context: typer.Context, model: Annotated[str | None, typer.Option()] = None) -> None:
    """Show all experiments, and what cannot be measured here and why."""
    assert context.parent is not None
    asked = context.parent.params
    found = find_model(model or asked["model"], asked["repository"])
    split = split_of(asked["server_cpus"], asked["client_cpus"])
    console = Console()
    with Display(console, total=None) as display:
        lab = _lab(found, Path(), split, QUICK, display, no_load)
        rows = [
            (one.name, one.title, usual_text(one.usual), one.missing(lab))
            for one in catalogue().values()
        ]
    show_list(console, rows)
