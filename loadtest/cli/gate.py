"""``infersweep gate``: is the candidate worse than the baseline by more than a limit?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.cli.options import parse_share
from loadtest.exporting.files import write_text
from loadtest.folder import ResultsFolder
from loadtest.gate.decision import STATUSES, Decision, Row, Rule, Verdict, decide, share
from loadtest.gate.side import read_side
from loadtest.gate.written import (
    change_text,
    interval_text,
    junit,
    markdown,
    sentence,
)
from loadtest.highest import point_name
from loadtest.measures import MEASURES, Measure, find_measure
from loadtest.rounding import four_digits
from loadtest.significance import CONFIDENCE
from serving.errors import UsageError

NAME = "gate"
EXAMPLES = (
    "Examples: `infersweep gate --baseline results/main --candidate results/branch` · "
    "`infersweep gate --baseline A --candidate B --max-regression 10% --metric p99 "
    "--junit gate.xml --markdown gate.md`"
)
_NAMED = 3
_COLOURS: dict[Verdict, str] = {
    "pass": "green",
    "regression": "red",
    "inconclusive": "yellow",
    "invalid": "red",
}


def run(
    baseline: Annotated[Path, typer.Option("--baseline", help="results folder to keep up with")],
    candidate: Annotated[Path, typer.Option("--candidate", help="results folder to judge")],
    max_regression: Annotated[
        str, typer.Option("--max-regression", help="how much worse may be, such as 5%")
    ] = "5%",
    metric: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(MEASURES)}; may be repeated [default: throughput]"),
    ] = None,
    confidence: Annotated[
        str, typer.Option(help="of each interval; more for many comparisons at once")
    ] = f"{CONFIDENCE:.0%}",
    junit_file: Annotated[
        Path | None, typer.Option("--junit", help="JUnit XML file to write")
    ] = None,
    markdown_file: Annotated[
        Path | None, typer.Option("--markdown", help="Markdown file to write")
    ] = None,
    allow_unlike: Annotated[
        bool, typer.Option("--allow-unlike", help="compare runs of unlike machines or settings")
    ] = False,
) -> int:
    """Compare two finished runs, without any load.

    Exit status: 0 pass, 20 regression, 21 inconclusive, 22 invalid.
    """
    measures = _measures(metric or ["throughput"])
    rule = Rule(_share(max_regression, "--max-regression"), _share(confidence, "--confidence"))
    if baseline.resolve() == candidate.resolve():
        raise UsageError(
            f"{candidate} is its own baseline",
            hint="Name two results folders; a run equals itself.",
        )
    before, after = (read_side(ResultsFolder(path), str(path)) for path in (baseline, candidate))
    decision = decide(before, after, measures, rule, allow_unlike=allow_unlike)
    for path, write in ((junit_file, junit), (markdown_file, markdown)):
        if path is not None:
            write_text(path, write(decision))
    _show(Console(soft_wrap=True), decision)
    return STATUSES[decision.verdict]


def _measures(names: Sequence[str]) -> list[Measure]:
    asked = dict.fromkeys(part.strip() for item in names for part in item.split(","))
    return [find_measure(name) for name in asked]


def _share(text: str, option: str) -> float:
    found = parse_share(text, option)
    assert found is not None
    return found


def _show(console: Console, decision: Decision) -> None:
    console.print(_table(decision))
    for text in decision.unlike:
        console.print(f"Unlike: {text}", style="yellow", highlight=False, markup=False)
    for text in _reasons(decision):
        console.print(text, highlight=False, markup=False)
    for text in decision.notes:
        console.print(f"Note: {text}", highlight=False, markup=False)
    console.print(sentence(decision), style=f"bold {_COLOURS[decision.verdict]}", highlight=False)


def _reasons(decision: Decision) -> Iterator[str]:
    """Each reason once, with some of those that it holds for."""
    found: dict[tuple[Verdict, str], list[str]] = {}
    for row in decision.rows:
        if row.verdict != "pass":
            name = f"{row.backend} at {_point(row, decision)}, {row.measure.name}"
            found.setdefault((row.verdict, row.why), []).append(name)
    for (verdict, why), names in found.items():
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"{verdict}: {'; '.join(names[:_NAMED])}{more}: {why}"


def _point(row: Row, decision: Decision) -> str:
    return point_name(row.level, decision.level_name)


def _table(decision: Decision) -> Table:
    """A row per figure; where a point has several, below a row that names it."""
    measures = list(dict.fromkeys(row.measure.name for row in decision.rows))
    several = len(measures) > 1
    table = Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    table.add_column("" if several else measures[0], overflow="fold")
    for name in ("baseline", "candidate", "change", f"{share(decision.rule.confidence)} interval"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    before = ""
    for row in decision.rows:
        point = f"{row.backend}, {_point(row, decision)}"
        if several and point != before:
            table.add_row(escape(point))
        before = point
        table.add_row(
            f"  {row.measure.name}" if several else escape(point),
            four_digits(row.before),
            four_digits(row.after),
            change_text(row),
            interval_text(row),
            f"[{_COLOURS[row.verdict]}]{row.verdict}[/]",
        )
    return table
