"""A playbook as Markdown for pull requests and documentation; texts are escaped. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadtest.playbook.record import ExperimentRecord, Playbook
from loadtest.playbook.wording import (
    answer_of,
    combination_sentence,
    extremes_of,
    groups_of,
    label_of,
    machine_lines,
    numbers_of,
    ratio_and_interval,
    reason_of,
    stated,
    times,
)
from loadtest.report.markdown import escape, fenced, table
from loadtest.report.numbers import MISSING


def to_markdown(playbook: Playbook) -> str:
    """Answer, tips by effect, all together, what was not measured, machine; ends with a newline."""
    parts = [
        f"### infersweep: playbook for {escape(playbook.model)}",
        f"**{escape(answer_of(playbook))}** {escape(extremes_of(playbook))}".strip(),
        *_incomplete(playbook),
        *_measured(playbook),
        *_combination(playbook),
        *_not_measured(playbook),
        _setup(playbook),
        fenced(playbook.command),
        f"Model SHA-256 `{playbook.model_sha256}`. Everything else is in `playbook.html`.",
    ]
    return "\n\n".join(parts) + "\n"


def _incomplete(playbook: Playbook) -> Iterator[str]:
    if not playbook.complete:
        yield "**Not finished**: some experiments were not run yet."


def _measured(playbook: Playbook) -> Iterator[str]:
    heads = (
        *("tip", "claim", "people state", "measured (95%)", "accuracy lost", "memory"),
        *("start-up", "verdict"),
    )
    rows = [_row(record) for record in groups_of(playbook).measured]
    if rows:
        yield table(heads, rows, left=(0, 1, 2, 7))
        yield (
            "Ratios are of the changed arm over the baseline, above 1 is better whatever is "
            "measured; memory and start-up are differences."
        )


def _row(record: ExperimentRecord) -> Sequence[str]:
    numbers = numbers_of(record.effect)
    return (
        escape(record.title),
        escape(record.claim),
        escape(stated(record)),
        numbers.ratio if record.measure == "throughput" else f"{numbers.ratio}, {record.measure}",
        numbers.lost,
        numbers.memory,
        numbers.start,
        f"**{label_of(record)}**",
    )


def _combination(playbook: Playbook) -> Iterator[str]:
    found = playbook.combination
    if found is None:
        return
    yield f"**All that helped, together.** {escape(combination_sentence(found))}"
    rows = [
        (
            escape(part.experiment),
            escape(part.what),
            times(part.ratio),
            f"{times(part.low)} to {times(part.high)}",
        )
        for part in found.parts
    ]
    rows.append(("**predicted**", "product of the above", times(found.predicted), MISSING))
    measured = ratio_and_interval(found.experiment.effect)
    rows.append(("**measured**", escape(found.combined), *measured))
    yield table(("part", "what", "ratio", "interval (95%)"), rows, left=(0, 1))
    if found.left_out:
        told = "; ".join(f"{name} ({why})" for name, why in found.left_out.items())
        yield f"Left out: {escape(told)}."


def _not_measured(playbook: Playbook) -> Iterator[str]:
    groups = groups_of(playbook)
    rows = [
        (escape(record.title), escape(stated(record)), label_of(record), escape(reason_of(record)))
        for record in (*groups.failed, *groups.missing)
    ]
    if rows:
        yield table(("tip", "people state", "verdict", "reason"), rows, left=(0, 1, 2, 3))


def _setup(playbook: Playbook) -> str:
    machine, versions = machine_lines(playbook)
    started = playbook.started[:16].replace("T", " ")
    return escape(f"{machine}; {versions}; {started}. {playbook.pace}.")
