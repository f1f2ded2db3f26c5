"""``infersweep tune``: the setting of a server that serves most within the objectives."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.cli.display import SearchDisplay
from loadtest.cli.measure import Run, prepare, rig_of
from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    MetricsPortOption,
    ModelOption,
    RepositoryOption,
    interrupt_on_sigterm,
    parse_backends,
    parse_share,
    require_positive,
    split_of,
)
from loadtest.cli.searching import (
    LimitOption,
    MaxErrorsOption,
    ObjectiveOption,
    SearchWindows,
    search_settings,
)
from loadtest.folder import ResultsFolder
from loadtest.objective import EXAMPLE, parse_objectives
from loadtest.observing.publishing import Publishing, published
from loadtest.report import numbers
from loadtest.rounding import four_digits
from loadtest.runner import Fleet
from loadtest.searched import SearchRecord
from loadtest.summary import write_summary
from loadtest.tune.budget import Budget, parse_budget
from loadtest.tune.outcome import Outcome
from loadtest.tune.page import write_page
from loadtest.tune.prepare import Plan, contenders_of, plan_of
from loadtest.tune.record import TunedBackend, TuneRecord, text_of
from loadtest.tune.run import Tuning
from loadtest.tune.space import Space
from serving.errors import INTERRUPTED_EXIT_CODE, UsageError
from serving.host import cpu_budget
from serving.knobs import Setting
from serving.models.repository import find_model

NAME = "tune"
EXAMPLES = (
    "Examples: `infersweep tune --backend onnxruntime --objective 'p99<=50ms'` · "
    f"`infersweep tune --backend onnxruntime,fastapi --objective '{EXAMPLE}' --budget 20m` · "
    "`infersweep tune -o 'p99<=50ms' --knobs max_batch_size,queue_delay_us --budget '15 trials'`"
)
_REPEATS, _QUICK_REPEATS = 5, 3
_COLOURS = {"searched": "green", "pruned": "dim", "not reachable": "yellow", "failed": "red"}


def run(
    model: ModelOption = "image_classifier",
    backend: Annotated[str, typer.Option(help="comma-separated list")] = "onnxruntime",
    objective: ObjectiveOption = None,
    max_errors: MaxErrorsOption = None,
    budget: Annotated[
        str, typer.Option(help="of each backend: settings such as 30, or a time such as 20m")
    ] = "30",
    accuracy_budget: Annotated[
        str | None, typer.Option(help="also try variants that lose so much at most, such as 1%")
    ] = None,
    oversubscribe: Annotated[
        float, typer.Option(help="inference threads that are allowed per server CPU")
    ] = 1.0,
    knobs: Annotated[
        str | None, typer.Option(help="search over these alone, comma-separated [default: all]")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="database URL or journal file that several machines share"),
    ] = None,
    allow_unlike: Annotated[
        bool, typer.Option("--allow-unlike", help="go on with a study of another kind of machine")
    ] = False,
    repeats: Annotated[
        int | None, typer.Option(help="of winner and default at the end [default: 5, quick: 3]")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="seconds of the shortest window [default: 5]")
    ] = None,
    limit: LimitOption = None,
    timeout: Annotated[float, typer.Option(help="seconds before a request is given up")] = 10.0,
    seed: Annotated[int, typer.Option(help="schedules, and the order of settings")] = 1,
    server_cpus: Annotated[
        str | None, typer.Option(help="such as 0-2 [default: all but one]")
    ] = None,
    client_cpus: Annotated[str | None, typer.Option(help="such as 3 [default: the last]")] = None,
    out: Annotated[
        Path | None, typer.Option(help="results folder; an unfinished search there is resumed")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="windows of 3 to 20 s")] = False,
    metrics_port: MetricsPortOption = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Find the setting that serves most within the objectives, and what to deploy.

    What was found is measured again beside the default; without a significant gain the default
    stays.
    """
    objectives = parse_objectives(objective or [], max_errors)
    limits = parse_budget(budget)
    again = repeats if repeats is not None else _QUICK_REPEATS if quick else _REPEATS
    require_positive(again, "--repeats")
    labels = parse_backends(backend)
    found = find_model(model, repository)
    split = split_of(server_cpus, client_cpus)
    settings = search_settings(
        objectives,
        model=model,
        labels=labels,
        repeats=1,
        windows=SearchWindows(duration, limit, quick),
        timeout_s=timeout,
        seed=seed,
        split=split,
    )
    console = Console()
    plan = plan_of(
        found,
        labels,
        cpus=len(split.server),
        oversubscribe=require_positive(oversubscribe, "--oversubscribe"),
        accuracy_budget=parse_share(accuracy_budget, "--accuracy-budget"),
        only=_names(knobs),
    )
    for label, space in plan.spaces.items():
        console.print(space_table(label, space))
    asked = Run(
        found,
        settings,
        Fleet(cpus=split.client),
        cpu_budget().usable,
        out,
        metrics_port=metrics_port,
    )
    with interrupt_on_sigterm():
        return _tune(console, asked, Search(plan, limits, again, storage, allow_unlike))


@dataclass(frozen=True)
class Search:
    """What ``tune`` is told besides what every measuring command is told."""

    plan: Plan
    budget: Budget
    repeats: int
    storage: str | None
    allow_unlike: bool


def _tune(console: Console, run: Run, asked: Search) -> int:
    folder, ceiling_rps = prepare(console, run)
    contenders = contenders_of(
        asked.plan, folder, storage=asked.storage, allow_unlike=asked.allow_unlike
    )
    interrupted = False
    with TuneDisplay(console) as display:
        rig = rig_of(run, folder, display, ceiling_rps)
        tuning = Tuning(rig, contenders, asked.budget, asked.repeats, display)
        publishing = Publishing(
            run.settings.client_cpus, run.metrics_port, display.stage, display.warning
        )
        try:
            with published(folder, publishing):
                tuning.run()
        except KeyboardInterrupt:
            interrupted = True
    record = tuning.conclude()
    write_summary(folder)
    show(console, record, folder, write_page(folder, record))
    if interrupted:
        console.print(f"Interrupted. Resume with: {folder.resume_command()}", highlight=False)
        return INTERRUPTED_EXIT_CODE
    return 0


def _names(text: str | None) -> tuple[str, ...]:
    names = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not names:
        raise UsageError("--knobs names none", hint="Write for example max_batch_size.")
    return names


class TuneDisplay(SearchDisplay):
    """Of a search over settings: what became of each, besides its probes."""

    def search_done(self, record: SearchRecord) -> None:
        """Of settings that are measured again; the first search is told by ``setting_done``."""
        if record.repeat > 1:
            super().search_done(record)

    def setting_done(self, arm: str, changes: Setting, outcome: Outcome) -> None:
        rate = f"{four_digits(outcome.goodput_rps)} requests/s" if outcome.goodput_rps else ""
        told = "; ".join(part for part in (rate, outcome.why) if part)
        self._progress.console.print(
            f"[bold]{escape(arm)}[/] ({escape(text_of(changes))}) "
            f"[{_COLOURS[outcome.verdict]}]{outcome.verdict}[/]: {escape(told)}",
            highlight=False,
        )


def space_table(label: str, space: Space) -> Table:
    """What can be turned, and how many settings that makes."""
    table = _table(f"{label}: {space.size.text} settings of {space.combinations:,} combinations")
    table.add_column("knob", no_wrap=True)
    table.add_column("values")
    table.add_column("default", no_wrap=True)
    for axis in space.axes:
        table.add_row(axis.knob, escape(", ".join(axis.values)), escape(axis.default))
    return table


def show(console: Console, record: TuneRecord, folder: ResultsFolder, page: Path) -> None:
    """Settings, the answer in a sentence, and what to deploy."""
    for backend in record.backends:
        console.print(tried_table(backend))
        told = [
            f"{one.knob} {one.verdict}" for one in backend.effects if one.verdict != "not clear"
        ]
        if told:
            console.print(f"Of the knobs of {backend.backend}: {', '.join(told)}.", highlight=False)
    for sentence in record.sentences:
        console.print(sentence, style="bold", highlight=False, markup=False)
    for backend in record.backends:
        if backend.deploy is not None:
            console.print(
                f"To serve it, in {folder.path / backend.deploy.folder}:", highlight=False
            )
            for command in backend.deploy.commands:
                console.print(f"  {command}", highlight=False, markup=False, soft_wrap=True)
    console.print(f"Page: {page}", highlight=False)


def tried_table(backend: TunedBackend) -> Table:
    """Every setting that was searched to its end, the most goodput first; the others counted."""
    known = [one for one in backend.tried if one.outcome and one.outcome.goodput_rps]
    left = len(backend.tried) - len(known)
    table = _table(f"{backend.backend}: {len(known)} settings searched, {left} left early")
    for name in ("setting", "requests/s", "p99 (ms)", "memory", "J/inference", ""):
        table.add_column(name, justify="left" if name in ("setting", "") else "right")
    for one in sorted(known, key=lambda one: -(one.outcome.goodput_rps or 0) if one.outcome else 0):
        outcome = one.outcome
        assert outcome is not None
        marks = {
            "chosen": one.number == backend.chosen,
            "knee": one.number == backend.knee,
            "front": one.on_front,
        }
        table.add_row(
            escape(one.text),
            four_digits(outcome.goodput_rps),
            numbers.milliseconds(outcome.p99_ms),
            numbers.size(outcome.memory_bytes),
            four_digits(outcome.joules),
            ", ".join(name for name, is_so in marks.items() if is_so),
        )
    return table


def _table(title: str) -> Table:
    return Table(
        title=escape(title),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
