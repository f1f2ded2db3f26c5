"""What ``infersweep tune`` does and shows; apart from its options, since it imports Optuna."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.cli.display import SearchDisplay
from loadtest.cli.measure import Run, prepare, rig_of
from loadtest.cli.options import interrupt_on_sigterm
from loadtest.folder import ResultsFolder
from loadtest.observing.publishing import Publishing, published
from loadtest.report import numbers
from loadtest.rounding import four_digits
from loadtest.searched import SearchRecord
from loadtest.summary import write_summary
from loadtest.tune.budget import Budget
from loadtest.tune.outcome import Outcome
from loadtest.tune.page import write_page
from loadtest.tune.prepare import Plan, contenders_of, plan_of
from loadtest.tune.record import TunedBackend, TuneRecord, text_of
from loadtest.tune.run import Tuning
from loadtest.tune.space import Space
from serving.errors import INTERRUPTED_EXIT_CODE
from serving.knobs import Setting

_COLOURS = {"searched": "green", "pruned": "dim", "not reachable": "yellow", "failed": "red"}


@dataclass(frozen=True)
class Search:
    """What ``tune`` is told besides what every measuring command is told.

    Attributes:
        knobs: search over these alone; all where it is empty.
        oversubscribe: inference threads that are allowed per server CPU.
        accuracy_share: what variants may lose; ``None`` for no variants.
    """

    budget: Budget
    repeats: int
    knobs: tuple[str, ...]
    oversubscribe: float
    accuracy_share: float | None
    storage: str | None
    allow_unlike: bool


def tune(console: Console, run: Run, asked: Search) -> int:
    """Search, measure again, and show it. Returns the exit status.

    Raises:
        InfersweepError: the space makes no sense, or nothing could be measured.
    """
    plan = plan_of(
        run.model,
        run.settings.backends,
        cpus=len(run.settings.server_cpus),
        oversubscribe=asked.oversubscribe,
        accuracy_budget=asked.accuracy_share,
        only=asked.knobs,
    )
    for label, space in plan.spaces.items():
        console.print(space_table(label, space))
    with interrupt_on_sigterm():
        return _tune(console, run, asked, plan)


def _tune(console: Console, run: Run, asked: Search, plan: Plan) -> int:
    folder, ceiling_rps = prepare(console, run)
    contenders = contenders_of(plan, folder, storage=asked.storage, allow_unlike=asked.allow_unlike)
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
