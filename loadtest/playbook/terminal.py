"""A playbook in the terminal: a line when an experiment ends, a table when all have."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.playbook.record import ExperimentRecord, Playbook
from loadtest.playbook.wording import (
    answer_of,
    combination_sentence,
    extremes_of,
    groups_of,
    label_of,
    numbers_of,
    reason_of,
    stated,
)

_COLOURS: Mapping[str, str] = {
    "holds": "green",
    "holds in part": "cyan",
    "no difference": "dim",
    "opposite": "yellow",
    "breaks accuracy": "red",
    "cannot be measured here": "dim",
    "failed": "red",
}
_WIDE = 100
"""Columns from which memory and start-up have room too."""


def line(record: ExperimentRecord) -> str:
    """One experiment that has ended, as markup for ``Console.print``."""
    label = label_of(record)
    told = f"[{_COLOURS[label]}]{label.capitalize()}[/]"
    return f"{escape(record.name)}: {told}: {escape(reason_of(record))}"


def show(console: Console, playbook: Playbook) -> None:
    """Print the answer, tips by effect, what was not measured and what all that helped gives."""
    told = f"[bold]{escape(answer_of(playbook))}[/] {escape(extremes_of(playbook))}"
    console.print(told, highlight=False)
    if not playbook.complete:
        console.print("[yellow]Not finished: some experiments were not run yet.[/]")
    groups = groups_of(playbook)
    if groups.measured:
        console.print(_measured(groups.measured, wide=console.width >= _WIDE), highlight=False)
    for record in (*groups.failed, *groups.missing):
        console.print(line(record), highlight=False)
    if playbook.combination:
        told = combination_sentence(playbook.combination)
        console.print(f"\n[bold]Together:[/] {escape(told)}", highlight=False)


def _measured(records: Sequence[ExperimentRecord], *, wide: bool) -> Table:
    table = _table()
    table.add_column("tip", overflow="fold")
    table.add_column("verdict", no_wrap=True)
    table.add_column("measured (95%)", justify="right", no_wrap=True)
    table.add_column("stated", justify="right", no_wrap=True)
    table.add_column("lost", justify="right", no_wrap=True)
    if wide:
        table.add_column("memory", justify="right", no_wrap=True)
        table.add_column("start-up", justify="right", no_wrap=True)
    for record in records:
        numbers, label = numbers_of(record.effect), label_of(record)
        table.add_row(
            escape(record.name),
            f"[{_COLOURS[label]}]{label}[/]",
            _short(numbers.ratio),
            _short(stated(record)),
            _short(numbers.lost),
            *((numbers.memory, numbers.start) if wide else ()),
        )
    return table


def show_list(console: Console, rows: Sequence[tuple[str, str, str, str]]) -> None:
    """Print all experiments: name, title, what people state, and why one cannot be measured."""
    table = _table()
    table.add_column("experiment", no_wrap=True)
    table.add_column("tip")
    table.add_column("stated", justify="right", no_wrap=True)
    table.add_column("here", overflow="fold")
    for name, title, usual, missing in rows:
        here = f"[yellow]{escape(missing)}[/]" if missing else "[green]can be measured[/]"
        table.add_row(escape(name), escape(title), _short(usual), here)
    console.print(table, highlight=False)


def _short(text: str) -> str:
    """A terminal may have 80 columns."""
    for long, short in (
        (" times or more", "+"),
        (" times", ""),
        (" to ", "-"),
        ("below ", "<"),
    ):
        text = text.replace(long, short)
    return text


def _table() -> Table:
    return Table(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
