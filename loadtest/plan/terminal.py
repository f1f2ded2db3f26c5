"""A plan in the terminal: one row per option, one per test, and the answer as a sentence."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from loadtest.plan.record import Option, Plan, Verification
from loadtest.plan.wording import (
    NO_NUMBER,
    VERDICTS,
    answer_of,
    labels_of,
    measured,
    names_of,
    percentile_of,
    plan_lines,
    ranged,
    signed,
    told_of_tests,
)
from loadtest.report.numbers import share
from loadtest.rounding import four_digits

_COLOURS = {"winner": "green", "open": "yellow", "none": "red"}
_BADGES = {"passed": "green", "open": "yellow", "failed": "red"}


def answer_text(plan: Plan) -> Text:
    """The badge, the sentence, and what tests said of it."""
    answer = answer_of(plan)
    text = Text.assemble((f"{answer.label}. ", _COLOURS[answer.kind]), (plan.sentence, "bold"))
    return text.append(f"\n{told_of_tests(plan)}") if told_of_tests(plan) else text


def plan_table(plan: Plan) -> Table:
    """Every option, with what 18 of 20 windows lie between; below it why one has no number."""
    asked, name = plan.asked, percentile_of(plan).name
    table = _table(f"{asked.model}: {asked.demand}, {asked.objective}", plan_lines(plan))
    table.add_column("option", max_width=20)
    table.add_column("replicas", justify="right", no_wrap=True)
    table.add_column("usable/s", justify="right", no_wrap=True)
    table.add_column("used", justify="right", no_wrap=True)
    table.add_column(f"{name} (ms)", justify="right", no_wrap=True)
    table.add_column("breaks first")
    for option, label in zip(plan.options, labels_of(plan), strict=True):
        table.add_row(escape(label), *_cells(option))
    return table


def verification_table(verifications: Sequence[Verification]) -> Table:
    """What was predicted of each held-out load, and what was measured."""
    names = names_of(verifications)
    reasons = [
        f"{names[one.profile]}, {one.load}: {told}" for one in verifications for told in one.reasons
    ]
    table = _table("Predictions and measurements, in ms", reasons)
    table.add_column("load", max_width=30, overflow="fold")
    table.add_column("of", no_wrap=True)
    table.add_column("predicted", justify="right")
    table.add_column("measured", justify="right")
    table.add_column("error", justify="right", no_wrap=True)
    table.add_column("drift", justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for one in verifications:
        table.add_row(
            escape(f"{names[one.profile]}, {one.load}"),
            escape(one.percentile),
            _dashed(ranged(one.predicted_ms)),
            _dashed(measured(one)),
            signed(one.error),
            signed(one.drift),
            f"[{_BADGES[VERDICTS[one.verdict]]}]{one.verdict}[/]",
        )
    return table


def _cells(option: Option) -> list[str]:
    number = f"[red]{NO_NUMBER}[/]" if option.replicas is None else f"{option.replicas:,}"
    return [
        number,
        "none" if option.usable_rps is None else four_digits(option.usable_rps),
        share(option.utilisation),
        _dashed(ranged(option.response_ms)),
        escape(option.breaks_first or ""),
    ]


def _dashed(text: str) -> str:
    """Shorter, since a terminal may have 80 columns."""
    return text.replace(" to ", "-")


def _table(title: str, lines: Sequence[str]) -> Table:
    return Table(
        title=escape(title),
        title_justify="left",
        caption=escape("\n".join(lines)) or None,
        caption_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
