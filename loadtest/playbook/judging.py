"""From windows to a ratio, from a ratio to a verdict on the claim. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import exp, log
from statistics import fmean
from typing import TypeVar

from loadtest.playbook.record import (
    Answers,
    ArmRecord,
    Effect,
    MeasureName,
    Verdict,
    WindowRecord,
)
from loadtest.significance import compare

N = TypeVar("N", int, float)

MATTERS = 1.02
"""An effect below two percent is none that anybody would act on, however sure it is."""

BUDGET = 0.01
"""Share of inputs that may be answered differently by what is allowed to lose accuracy."""

UNITS: Mapping[MeasureName, str] = {
    "throughput": "inferences/s",
    "p50": "ms",
    "p99": "ms",
    "slowest": "ms",
}


def value_of(window: WindowRecord, measure: MeasureName) -> float | None:
    """Higher is better only for ``throughput``."""
    return {
        "throughput": window.inferences_per_s,
        "p50": window.p50_ms,
        "p99": window.p99_ms,
        "slowest": window.slowest_ms,
    }[measure]


def values_of(arm: ArmRecord, measure: MeasureName) -> list[float]:
    """One value for each repeat: for each start where there are several, else for each window.

    Windows of one start depend on each other, so of several starts each gives one value, the
    geometric mean of its windows.
    """
    found: dict[int, list[float]] = {}
    for window in arm.windows:
        value = value_of(window, measure)
        if not window.reasons and value is not None and value > 0:
            found.setdefault(window.start, []).append(value)
    if len({window.start for window in arm.windows}) == 1:
        return [value for values in found.values() for value in values]
    return [exp(fmean(map(log, values))) for values in found.values()]


def effect_of(baseline: ArmRecord, changed: ArmRecord, measure: MeasureName) -> Effect:
    """A ratio above 1 says that the changed arm is better."""
    before, after = (values_of(arm, measure) for arm in (baseline, changed))
    beside = Effect(
        arm=changed.name,
        ratio=None,
        memory_ratio=_ratio(baseline.rss_bytes, changed.rss_bytes),
        memory_bytes=_difference(baseline.rss_bytes, changed.rss_bytes),
        start_s=_difference(_mean(baseline.start_s), _mean(changed.start_s)),
        accuracy_lost=changed.answers.lost if changed.answers else None,
    )
    if not before or not after:
        return beside
    if measure != "throughput":
        # Less time is better: the same ratio as that of one over each time.
        before, after = [1 / value for value in before], [1 / value for value in after]
    change = compare(before, after)
    return beside.model_copy(
        update={
            "ratio": change.ratio,
            "low": change.low,
            "high": change.high,
            "repeats": min(change.repeats),
        }
    )


def verdict_of(
    effect: Effect | None,
    answers: Answers | None,
    usual: tuple[float, float | None],
    *,
    may_lose: bool = False,
) -> Verdict:
    """Whether the claim that ``effect`` reaches ``usual`` is true.

    It holds when the ratio is above 1 beyond doubt and its interval reaches the least that people
    state; in part when it is above 1 and stays below that. Whatever lies within ``MATTERS`` is no
    difference. An interval that holds both 1 and what people state says nothing. Wrong answers end
    the matter: of what may lose accuracy, above ``BUDGET``.
    """
    if answers is not None and breaks(answers, may_lose=may_lose):
        return "breaks accuracy"
    if effect is None or effect.ratio is None or effect.low is None or effect.high is None:
        return "cannot be measured here"
    if effect.low <= 1 <= effect.high:
        undecided = effect.high >= usual[0] > MATTERS
        return "cannot be measured here" if undecided else "no difference"
    if 1 / MATTERS < effect.ratio < MATTERS:
        return "no difference"
    if effect.ratio < 1:
        return "opposite"
    return "holds" if effect.high >= usual[0] else "holds in part"


def breaks(answers: Answers, *, may_lose: bool) -> bool:
    """Whether the answers are too far from the reference's."""
    return answers.lost > BUDGET if may_lose else not answers.right


def sentence_of(
    verdict: Verdict,
    effect: Effect | None,
    answers: Answers | None,
    usual: tuple[float, float | None],
    reasons: Sequence[str] = (),
) -> str:
    """The verdict and its reason, without the claim."""
    if verdict == "cannot be measured here":
        return f"Cannot be measured here: {next(iter(reasons), 'no window counts')}."
    if verdict == "breaks accuracy" and answers is not None:
        lost = f"{answers.lost:.1%} of answers lost ({answers.lost_measure})"
        both = (lost if answers.lost > BUDGET else "", answers.detail)
        told = f"Breaks accuracy: {'; '.join(filter(None, both)) or lost}"
        faster = effect.ratio if effect else None
        return told + (f"; it would be {faster:.2f} times the baseline." if faster else ".")
    assert effect is not None
    assert effect.ratio is not None
    found = f"{effect.ratio:.2f} times the baseline ({effect.low:.2f} to {effect.high:.2f})"
    loses = f", {effect.accuracy_lost:.1%} of answers lost" if effect.accuracy_lost else ""
    return f"{verdict.capitalize()}: {found}{loses}; {usual_text(usual)} is what people state."


def too_noisy(effect: Effect, usual: tuple[float, float | None]) -> str:
    """Why an interval says nothing."""
    return (
        f"{effect.low:.2f} to {effect.high:.2f} times the baseline holds both no difference and "
        f"{usual_text(usual)}; more repeats or a quieter machine would tell"
    )


def usual_text(usual: tuple[float, float | None]) -> str:
    """The stated ratio in words."""
    low, high = usual
    if high is None:
        return f"{low:g} times or more"
    return f"{low:g} times" if low == high else f"{low:g} to {high:g} times"


def _mean(values: Sequence[float]) -> float | None:
    return fmean(values) if values else None


def _ratio(before: float | None, after: float | None) -> float | None:
    return after / before if before and after else None


def _difference(before: N | None, after: N | None) -> N | None:
    return None if before is None or after is None else after - before
