"""``infersweep history``: what earlier runs found, and how it went from commit to commit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.exporting.files import whole_or_absent
from loadtest.history.figure import line_name, title_of
from loadtest.history.page import picture, render
from loadtest.history.runs import Group, History, read_history
from loadtest.measures import MEASURES, find_measure
from loadtest.rounding import four_digits
from serving.errors import ResultsError, UsageError

NAME = "history"
EXAMPLES = (
    "Examples: `infersweep history` · "
    "`infersweep history results archive --metric p99 --out history.html`"
)
_WRITERS = {".html": lambda history: render(history).encode(), ".png": picture}


def run(
    folders: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FOLDER]...", help="where runs lie [default: results]"),
    ] = None,
    metric: Annotated[str, typer.Option(help=", ".join(MEASURES))] = "throughput",
    out: Annotated[
        Path | None, typer.Option("--out", help="page or picture to write: .html or .png")
    ] = None,
) -> int:
    """List the runs below some folders and chart a metric over commits, without any load."""
    measure = find_measure(metric)
    if out is not None and out.suffix not in _WRITERS:
        raise UsageError(
            f"--out {out} is neither a page nor a picture", hint="End it in .html or .png."
        )
    history = read_history(folders or [Path("results")], measure)
    console = Console(soft_wrap=True)
    for group in history.groups:
        _show(console, group, history)
    for path, reason in history.unreadable.items():
        console.print(f"left out: {path}: {reason}", style="yellow", highlight=False, markup=False)
    if not history.groups:
        raise ResultsError("none of these runs can be read", hint="The reasons are told above.")
    if out is not None:
        written = _WRITERS[out.suffix](history)
        with whole_or_absent(out) as stream:
            stream.write(written)
        console.print(f"Written: {out}", highlight=False, markup=False)
    return 0


def _show(console: Console, group: Group, history: History) -> None:
    """A heading, and below it a line for each run and one for each of its figures."""
    unit = history.measure.unit
    console.print(f"\n{title_of(group, history)}", style="bold", highlight=False, markup=False)
    for run in group.runs:
        console.print(
            f"{run.created:%Y-%m-%d %H:%M}  {run.commit}  {run.path}"
            + ("" if run.complete else "  unfinished"),
            highlight=False,
            markup=False,
        )
        table = Table.grid(padding=(0, 2, 0, 0))
        for justify in ("left", "right", "right", "left"):
            table.add_column(justify=justify)
        for one in run.found:
            colour = "green" if one.verdict == "VALID" else "red"
            told = f" {escape(one.why)}" if one.why else ""
            table.add_row(
                f"  {escape(line_name(group, one))}",
                f"{four_digits(one.value)} {unit}",
                f"{four_digits(one.low)} to {four_digits(one.high)}",
                f"[{colour}]{one.verdict}[/]{told}",
            )
        console.print(table)
