"""Whether a candidate is worse than its baseline by more than a limit. Pure.

The limit and the interval of the ratio (``loadtest.significance``) decide:

- all of the interval is beyond the limit: regression;
- none of it is: pass;
- the limit lies inside: the candidate may be a little beyond it, or not. Where the interval
  reaches no further to either side of its middle than the limit is wide, a regression of three
  times the limit would hardly have hidden in it, and this is a pass. Where it reaches further the
  repeats are too noisy for this limit: inconclusive.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loadtest.gate.side import Side
from loadtest.highest import levels_of, point_name
from loadtest.likeness import (
    conditions,
    conditions_of_backend,
    differences,
    tested,
    tested_of_backend,
)
from loadtest.measures import RESOLUTION, Measure, Reading, UnmeasuredError, counted
from loadtest.results import Trial
from loadtest.scenarios import is_closed
from loadtest.significance import CONFIDENCE, LEAST_REPEATS, Change, compare
from serving.errors import ResultsError

Verdict = Literal["pass", "regression", "inconclusive", "invalid"]

STATUSES: Mapping[Verdict, int] = {"pass": 0, "regression": 20, "inconclusive": 21, "invalid": 22}
"""Exit statuses; none of them is one of ``serving.errors``, since a verdict is no error."""

_GRAVEST_FIRST: tuple[Verdict, ...] = ("regression", "invalid", "inconclusive", "pass")


@dataclass(frozen=True)
class Rule:
    """Attributes: ``limit`` as a share, above which worse is too much; ``confidence`` of each."""

    limit: float
    confidence: float = CONFIDENCE


@dataclass(frozen=True)
class Row:
    """One figure of one backend at one level, on both sides.

    Attributes:
        before, after: geometric means over the VALID repeats; ``None`` where there are none.
        change: the ratio of both; ``None`` where they could not be compared.
        why: the verdict in words.
        window_s: length of all windows behind it.
    """

    backend: str
    level: float
    measure: Measure
    before: float | None
    after: float | None
    change: Change | None
    verdict: Verdict
    why: str
    window_s: float = 0.0


@dataclass(frozen=True)
class Decision:
    """What the gate found.

    Attributes:
        unlike: conditions that differ and were allowed to.
        notes: what is tested and differs, and what is on one side only.
    """

    before: str
    after: str
    level_name: str
    rule: Rule
    rows: tuple[Row, ...]
    unlike: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def verdict(self) -> Verdict:
        """The gravest of all rows."""
        found = {row.verdict for row in self.rows}
        return next(verdict for verdict in _GRAVEST_FIRST if verdict in found)

    @property
    def counts(self) -> dict[Verdict, int]:
        found = Counter(row.verdict for row in self.rows)
        return {verdict: found[verdict] for verdict in _GRAVEST_FIRST}


def decide(
    before: Side,
    after: Side,
    measures: Sequence[Measure],
    rule: Rule,
    *,
    allow_unlike: bool = False,
) -> Decision:
    """Every figure of every backend and level that both sides have.

    Raises:
        ResultsError: they have none in common, or were measured under other conditions and
            ``allow_unlike`` is false.
    """
    one, other = before.manifest.settings, after.manifest.settings
    backends = [label for label in one.backends if label in other.backends]
    levels = [level for level in levels_of(one) if level in levels_of(other)]
    if not backends or not levels:
        raise ResultsError(
            f"{before.name} and {after.name} have no backend and level in common",
            hint="Measure the candidate with the baseline's own command.",
        )
    unlike = tuple(_unlike(before, after, backends))
    if unlike and not allow_unlike:
        raise ResultsError(
            f"{before.name} and {after.name} cannot be compared: {'; '.join(unlike)}",
            hint="Measure both alike, or give --allow-unlike to compare them in spite of it.",
        )
    rows = tuple(
        _row(before, after, backend, level, measure, rule)
        for backend in backends
        for level in levels
        for measure in measures
    )
    notes = (*_notes(before, after, backends), *_on_one_side(before, after))
    scheduled = not one.objectives and not is_closed(one)
    if any(measure.name == "throughput" for measure in measures) and scheduled:
        notes += (f"{one.scenario}: its schedule sets the throughput; gate p99 too",)
    return Decision(before.name, after.name, one.level_name, rule, rows, unlike, notes)


def _row(
    before: Side, after: Side, backend: str, level: float, measure: Measure, rule: Rule
) -> Row:
    trials: list[list[Trial]] = []
    faults: list[str] = []
    for name, side in (("baseline", before), ("candidate", after)):
        found = side.at(backend, level)
        valid, is_valid = counted(found)
        trials.append(valid)
        if not is_valid:
            faults.append(f"the {name} {_fault(side.excluded(backend), found)}")
    if faults:
        why = "; ".join(faults)
        return Row(backend, level, measure, None, None, None, "invalid", why)
    window_s = sum(trial.window_s for side in trials for trial in side)
    try:
        readings = [
            [measure.of(trial, side.samples) for trial in own]
            for side, own in zip((before, after), trials, strict=True)
        ]
    except UnmeasuredError as why:
        told = f"{measure.name} cannot be compared: {why}"
        return Row(backend, level, measure, None, None, None, "inconclusive", told, window_s)
    values = [[reading.value for reading in side] for side in readings]
    change = compare(
        *values,
        lower_is_better=measure.lower_is_better,
        confidence=rule.confidence,
        resolution=RESOLUTION,
    )
    means = [math.exp(math.fsum(map(math.log, side)) / len(side)) for side in values]
    verdict, told = judged(change, measure, rule.limit)
    if bases := _bases(readings):
        verdict, told = "invalid", f"{measure.name} of unlike things: {bases}"
    return Row(backend, level, measure, means[0], means[1], change, verdict, told, window_s)


def share(value: float) -> str:
    return f"{100 * value:.3g}%"


def judged(change: Change, measure: Measure, limit: float) -> tuple[Verdict, str]:
    """In logarithms, turned so that above 0 is worse."""
    if change.low is None or change.high is None:
        return "inconclusive", (
            f"{change.repeats[0]} against {change.repeats[1]} VALID repeats: "
            f"it takes {LEAST_REPEATS} of each"
        )
    sign = 1 if measure.lower_is_better else -1
    bound = sign * math.log1p(sign * limit)
    least, most = sorted((sign * math.log(change.low), sign * math.log(change.high)))
    if least > bound:
        return "regression", f"all of the interval is worse by more than {share(limit)}"
    if most <= bound:
        return "pass", f"none of the interval is worse by more than {share(limit)}"
    if (most - least) / 2 > bound:
        return "inconclusive", (
            f"the interval is too wide for a limit of {share(limit)}: "
            "more repeats, longer windows or a quieter machine would narrow it"
        )
    return (
        "pass",
        f"not shown to be worse by more than {share(limit)}, though the interval allows it",
    )


def _fault(excluded: str | None, trials: Sequence[Trial]) -> str:
    """Why a point is INVALID."""
    if excluded:
        return f"was left out: {excluded}"
    reasons = Counter(reason for trial in trials for reason in trial.reasons)
    told = "; ".join(f"{text} ({n} of {len(trials)} repeats)" for text, n in reasons.items())
    return f"is INVALID: {told or 'most of its repeats are'}"


def _bases(readings: Sequence[Sequence[Reading]]) -> str:
    """What values are of, when that is not the same everywhere."""
    found = dict.fromkeys(reading.basis for side in readings for reading in side)
    return " against ".join(found) if len(found) > 1 else ""


def _unlike(before: Side, after: Side, backends: Iterable[str]) -> Iterator[str]:
    yield from differences(conditions(before.manifest), conditions(after.manifest))
    for label in backends:
        own = (conditions_of_backend(side.records.get(label)) for side in (before, after))
        yield from (f"{label}, {text}" for text in differences(*own))


def _notes(before: Side, after: Side, backends: Iterable[str]) -> Iterator[str]:
    yield from differences(tested(before.manifest), tested(after.manifest))
    if before.configuration != after.configuration and before.configuration and after.configuration:
        yield "config.pbtxt: another was served; both lie in the folders' model_repository"
    for label in backends:
        own = (tested_of_backend(side.records.get(label)) for side in (before, after))
        yield from (f"{label}, {text}" for text in differences(*own))


def _on_one_side(before: Side, after: Side) -> Iterator[str]:
    """Points that nothing is compared with."""
    one, other = before.manifest.settings, after.manifest.settings
    for name, own, its in (("baseline", one, other), ("candidate", other, one)):
        labels = [label for label in own.backends if label not in its.backends]
        levels = [level for level in levels_of(own) if level not in levels_of(its)]
        if labels:
            yield f"only in the {name}: {', '.join(labels)}"
        if levels:
            yield f"only in the {name}: {', '.join(point_name(n, own.level_name) for n in levels)}"
