"""``infersweep slo``: the highest arrival rate at which the objectives still hold."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from loadtest.cli.display import Display
from loadtest.cli.measure import Run, prepare
from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    MetricsPortOption,
    ModelOption,
    RepositoryOption,
    interrupt_on_sigterm,
    parse_backends,
    require_positive,
    split_of,
)
from loadtest.folder import ResultsFolder
from loadtest.measures import four_digits
from loadtest.objective import EXAMPLE, parse_objectives
from loadtest.observing.publishing import Publishing, published
from loadtest.report.numbers import milliseconds
from loadtest.results import Settings
from loadtest.rig import Rig
from loadtest.runner import Fleet
from loadtest.slo.measurable import require_measurable
from loadtest.slo.page import NAME as PAGE
from loadtest.slo.record import LatencyRecord, ProbeRecord, SearchRecord
from loadtest.slo.run import ObjectiveSearch
from serving.errors import INTERRUPTED_EXIT_CODE, UsageError
from serving.host import cpu_budget
from serving.models.repository import find_model

NAME = "slo"
EXAMPLES = (
    "Examples: `infersweep slo --backend onnxruntime --objective 'p99<=50ms'` · "
    f"`infersweep slo --objective '{EXAMPLE}' --max-errors 0.05% --quick` · "
    "`infersweep slo --backend remote:http://127.0.0.1:8000 --objective 'p99.9<=0.2s' --out X`"
)
QUICK_S, WINDOWS_S = (3.0, 20.0), (5.0, 60.0)
"""Shortest and longest window. Below three seconds there are too few batches to tell how much slow
requests come together."""
_COLOURS = {"met": "green", "costly": "yellow", "missed": "red", "void": "yellow", None: "dim"}


def run(
    model: ModelOption = "image_classifier",
    backend: Annotated[str, typer.Option(help="one, also remote:URL")] = "onnxruntime",
    objective: Annotated[
        list[str] | None,
        typer.Option("--objective", "-o", help=f"such as '{EXAMPLE}'; all given must hold"),
    ] = None,
    max_errors: Annotated[
        str | None, typer.Option(help="share that may fail, 0.1% at most [default: 0.1%]")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="seconds of the shortest window [default: 5]")
    ] = None,
    limit: Annotated[
        float | None, typer.Option(help="seconds of the longest window [default: 60]")
    ] = None,
    timeout: Annotated[float, typer.Option(help="seconds before a request is given up")] = 10.0,
    seed: Annotated[int, typer.Option(help="schedules and order of inputs")] = 1,
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
    """Find the highest rate of Poisson arrivals at which every objective holds.

    "Not reachable" is an answer too: the exit status is 0 whenever the search came to its end.
    """
    objectives = parse_objectives(objective or [], max_errors)
    found = find_model(model, repository)
    labels = parse_backends(backend)
    if len(labels) > 1:
        raise UsageError(
            f"--backend {backend} names {len(labels)}", hint="Search on one at a time."
        )
    require_measurable(objectives, labels[0], require_positive(timeout, "--timeout"))
    split = split_of(server_cpus, client_cpus)
    shortest_s, longest_s = QUICK_S if quick else WINDOWS_S
    settings = Settings(
        model=model,
        backends=labels,
        scenario="server",
        level_name="requests/s",
        levels=(),
        duration_s=require_positive(shortest_s if duration is None else duration, "--duration"),
        repeats=1,
        timeout_s=timeout,
        seed=seed,
        limit_s=require_positive(longest_s if limit is None else limit, "--limit"),
        slo_ms=objectives.percentiles[0].limit_ns / 1e6,
        objectives=objectives.texts,
        server_cpus=split.server,
        client_cpus=split.client,
    )
    if settings.limit_s < settings.duration_s:
        raise UsageError(
            f"--limit {settings.limit_s:g} is below --duration {settings.duration_s:g}",
            hint="The longest window cannot be shorter than the shortest.",
        )
    fleet = Fleet(cpus=split.client)
    asked = Run(found, settings, fleet, cpu_budget().usable, out, metrics_port=metrics_port)
    with interrupt_on_sigterm():
        return _search(Console(), asked)


def _search(console: Console, run: Run) -> int:
    folder, ceiling_rps = prepare(console, run)
    try:
        with SearchDisplay(console) as display:
            publishing = Publishing(
                run.settings.client_cpus, run.metrics_port, display.stage, display.warning
            )
            rig = Rig(
                run.settings,
                run.model,
                run.usable_cpus,
                folder,
                display,
                run.fleet,
                ceiling_rps,
                run.access,
            )
            with published(folder, publishing):
                record = ObjectiveSearch(rig, display).run()
    except KeyboardInterrupt:
        console.print(f"Interrupted. Resume with: {folder.resume_command()}", highlight=False)
        return INTERRUPTED_EXIT_CODE
    show(console, record, folder)
    return 0


def show(console: Console, record: SearchRecord, folder: ResultsFolder) -> None:
    """The table of probes, then the answer in one sentence, and where the page is."""
    console.print(table_of(record))
    console.print(record.answer.sentence, style="bold", highlight=False, markup=False)
    console.print(f"Page: {folder.path / PAGE}", highlight=False)


def table_of(record: SearchRecord) -> Table:
    table = Table(
        title=escape(f"{record.manifest.settings.model}, response times in ms (99% bounds)"),
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    rows = [*record.closed, *record.probes]
    table.add_column("probe", justify="right")
    table.add_column("requests/s", justify="right", no_wrap=True)
    for found in rows[0].latencies if rows else ():
        table.add_column(f"{found.name} <= {milliseconds(found.limit_ms)}", justify="right")
    table.add_column("window", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for row in rows:
        verdict = f"{row.users} at once" if row.verdict is None else row.verdict
        early = " (early end)" if row.cut else ""
        table.add_row(
            str(row.number or ""),
            four_digits(row.rate_rps),
            *(_time(found) for found in row.latencies),
            f"{row.window_s:.1f} s",
            f"[{_COLOURS[row.verdict]}]{verdict}[/]{early}",
        )
    return table


def _time(found: LatencyRecord) -> str:
    if found.value_ms is None:
        return "no answer"
    if found.low_ms is None:
        return f"{milliseconds(found.value_ms)} (too few)"
    high = "no bound" if found.high_ms is None else milliseconds(found.high_ms)
    return f"{milliseconds(found.value_ms)} ({milliseconds(found.low_ms)}-{high})"


class SearchDisplay(Display):
    """Of a search: the time that has gone by, and a line per probe."""

    def __init__(self, console: Console) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        super().__init__(console, *columns, total=None)

    def probe_done(self, probe: ProbeRecord, most: int) -> None:
        self._progress.console.print(
            f"probe {probe.number} of {most} at most: {four_digits(probe.rate_rps)} requests/s "
            f"[{_COLOURS[probe.verdict]}]{probe.verdict}[/]: {escape(probe.why)}",
            highlight=False,
        )
