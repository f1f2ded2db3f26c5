"""What a person sees while something is measured."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

from loadtest.results import Settings, Trial
from loadtest.rounding import four_digits
from loadtest.scenarios import find_scenario
from loadtest.searched import ProbeRecord, SearchRecord

VERDICT_COLOURS = {"met": "green", "costly": "yellow", "missed": "red", "void": "yellow"}


class Display:
    """A ``RigListener`` for the terminal: the stage, what went wrong, and lines that stay."""

    def __init__(self, console: Console, *columns: ProgressColumn, total: int | None) -> None:
        self._progress = Progress(
            *columns,
            console=console,
            # The display shares a CPU with the generator.
            refresh_per_second=2,
            transient=True,
        )
        self._task = self._progress.add_task("starting", total=total)

    def stage(self, text: str) -> None:
        self._progress.update(self._task, description=escape(text))

    def warning(self, text: str) -> None:
        self._progress.console.print(f"[yellow]{escape(text)}[/]", highlight=False)

    def backend_excluded(self, label: str, reason: str) -> None:
        self._progress.console.print(f"[red]{escape(label)} is left out: {escape(reason)}[/]")

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()


class LiveDisplay(Display):
    """Of a sweep: a bar, and a line per finished trial; plain lines where there is no terminal."""

    def __init__(self, console: Console, settings: Settings, *, done: int) -> None:
        super().__init__(
            console,
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            total=settings.planned_trials,
        )
        self._progress.update(self._task, completed=done)

    def trial_done(self, trial: Trial, done: int, planned: int) -> None:
        self._progress.update(self._task, completed=done)
        rate = trial.outcomes["ok"] / trial.window_s * trial.rows_per_request
        name = find_scenario(trial.scenario).level_name
        colour = "green" if trial.verdict == "VALID" else "red"
        why = f": {'; '.join(trial.reasons)}" if trial.reasons else ""
        self._progress.console.print(
            f"{done}/{planned} {escape(trial.backend)} {trial.level:g} {name} "
            f"repeat {trial.repeat}: {rate:,.1f} inferences/s, warm after {trial.warmup_s:.1f} s "
            f"[{colour}]{trial.verdict}[/]{escape(why)}",
            highlight=False,
        )


class SearchDisplay(Display):
    """Of searches: the time that has gone by, a line per probe, and the answer of each search."""

    def __init__(self, console: Console) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        super().__init__(console, *columns, total=None)

    def probe_done(self, arm: str, repeat: int, probe: ProbeRecord) -> None:
        assert probe.verdict is not None
        self._progress.console.print(
            f"{escape(arm)} repeat {repeat}, probe {probe.number}: "
            f"{four_digits(probe.rate_rps)} requests/s "
            f"[{VERDICT_COLOURS[probe.verdict]}]{probe.verdict}[/]: {escape(probe.why)}",
            highlight=False,
        )

    def search_done(self, record: SearchRecord) -> None:
        self._progress.console.print(record.answer.sentence, highlight=False, markup=False)
