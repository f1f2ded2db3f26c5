"""A plan in short, as Markdown for a pull request; what users wrote is escaped. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from loadtest.plan.record import Option, Plan
from loadtest.plan.wording import (
    NO_NUMBER,
    answer_of,
    cost,
    labels_of,
    measured,
    names_of,
    percentile_of,
    plan_lines,
    ranged,
    signed,
    told_of_tests,
)
from loadtest.report import numbers
from loadtest.report.markdown import escape, fenced, table
from loadtest.rounding import four_digits


def markdown(plan: Plan) -> str:
    """Answer, options, tests, what to know of them and the command; ends with a newline."""
    asked = plan.asked
    link = f", over {asked.link}" if asked.link else ""
    parts = [
        f"### infersweep: plan for {escape(asked.model)}",
        f"**{escape(answer_of(plan).label)}.** {escape(f'{plan.sentence} {told_of_tests(plan)}')}",
        escape(
            f"Asked: {asked.demand}, {asked.objective}{link}; {asked.survive} may fail at once, "
            f"{asked.headroom:.0%} of the usable rate unused."
        ),
        *_options(plan),
        *_tests(plan),
        *_lines(plan),
        fenced(plan.command),
        "Everything else is in `plan.html`.",
    ]
    return "\n\n".join(parts) + "\n"


def _options(plan: Plan) -> Iterator[str]:
    name = percentile_of(plan).name
    heads = (
        *("option", "replicas", "usable/s", "peak/s", "utilisation", f"{name} (ms)"),
        *("memory each", "J per inference", "cost of a million", "breaks first"),
    )
    rows = [
        _row(option, label) for option, label in zip(plan.options, labels_of(plan), strict=True)
    ]
    if rows:
        yield table(heads, rows, left=(0, 9))


def _row(option: Option, label: str) -> Sequence[str]:
    return (
        escape(label),
        NO_NUMBER if option.replicas is None else f"{option.replicas:,}",
        "none" if option.usable_rps is None else numbers.rate(option.usable_rps),
        numbers.rate(option.peak_rps),
        numbers.share(option.utilisation),
        ranged(option.response_ms),
        numbers.size(option.memory_bytes),
        four_digits(option.energy.gross_j_per_inference if option.energy else None),
        escape(cost(option)),
        escape(option.breaks_first or numbers.MISSING),
    )


def _tests(plan: Plan) -> Iterator[str]:
    names = names_of((*plan.options, *plan.verifications))
    rows = [
        (
            escape(names[one.profile]),
            escape(one.load),
            escape(one.percentile),
            ranged(one.predicted_ms),
            measured(one),
            signed(one.error),
            signed(one.drift),
            one.verdict,
        )
        for one in plan.verifications
    ]
    if rows:
        heads = ("tested", "load", "of", "predicted (ms)", "measured (ms)", "error", "drift")
        yield table((*heads, "verdict"), rows, left=(0, 1, 2, 7))


def _lines(plan: Plan) -> Iterator[str]:
    lines = [f"- {escape(line)}" for line in plan_lines(plan)]
    names = names_of((*plan.options, *plan.verifications))
    lines += [
        f"- {escape(f'{names[one.profile]}, {one.load}: {told}')}"
        for one in plan.verifications
        for told in one.reasons
    ]
    if lines:
        yield "\n".join(lines)
