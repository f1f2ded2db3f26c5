"""A playbook in words and numbers; page, Markdown and terminal say the same. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from loadtest.playbook.judging import usual_text
from loadtest.playbook.record import Combination, Effect, ExperimentRecord, Playbook
from loadtest.report.numbers import MISSING, size
from loadtest.report.numbers import cpus as cpu_numbers

_COUNTED: Mapping[str, tuple[str, str]] = {
    "holds in part": ("in part", "in part"),
    "no difference": ("makes no difference", "make no difference"),
    "opposite": ("does the opposite", "do the opposite"),
    "breaks accuracy": ("breaks accuracy", "break accuracy"),
    "cannot be measured here": ("cannot be measured here", "cannot be measured here"),
    "failed": ("failed", "failed"),
}
_FAINTEST = 1e-4
"""A smaller share of answers is only told to be below it."""


class Groups(NamedTuple):
    """Records by what became of them, each group in the order of the playbook."""

    measured: tuple[ExperimentRecord, ...]
    failed: tuple[ExperimentRecord, ...]
    missing: tuple[ExperimentRecord, ...]


class Numbers(NamedTuple):
    """One effect, as text for the cells of a table."""

    ratio: str
    lost: str
    memory: str
    start: str


def groups_of(playbook: Playbook) -> Groups:
    """What broke may work when run again, so it is not among what cannot be measured here."""
    found: tuple[list[ExperimentRecord], ...] = ([], [], [])
    for record in playbook.experiments:
        place = 0 if record.verdict != "cannot be measured here" else 1 if record.failed else 2
        found[place].append(record)
    return Groups(*map(tuple, found))


def label_of(record: ExperimentRecord) -> str:
    """The verdict, or that there is none."""
    failed = record.failed and record.verdict == "cannot be measured here"
    return "failed" if failed else record.verdict


def reason_of(record: ExperimentRecord) -> str:
    """The sentence without its verdict."""
    return record.sentence.partition(": ")[2] or record.sentence


def answer_of(playbook: Playbook) -> str:
    """How many tips have which verdict."""
    total = len(playbook.experiments)
    if not total:
        return f"No tip was measured yet for {playbook.model}."
    holding, *others = _counts(playbook)
    whole = f"Of {total} tip{'s' if total > 1 else ''}"
    told = f"{whole} {holding} on this machine for {playbook.model}"
    return f"{', '.join([told, *others])}."


def extremes_of(playbook: Playbook) -> str:
    """The largest gain and the largest loss; empty where there is none."""
    return " ".join(_extremes(groups_of(playbook)))


def _counts(playbook: Playbook) -> Iterator[str]:
    """Those that hold first, even if none does."""
    labels = [label_of(record) for record in playbook.experiments]
    yield f"{labels.count('holds') or 'none'} {'hold' if labels.count('holds') > 1 else 'holds'}"
    for label, (one, several) in _COUNTED.items():
        if count := labels.count(label):
            yield f"{count} {one if count == 1 else several}"


def _extremes(groups: Groups) -> Iterator[str]:
    """Nobody would follow what breaks accuracy, so it is no gain."""
    known = [
        (record, record.effect.ratio)
        for record in groups.measured
        if record.effect
        and record.effect.ratio
        and record.verdict in ("holds", "holds in part", "opposite")
    ]
    if not known:
        return
    best, gain = max(known, key=lambda one: one[1])
    worst, loss = min(known, key=lambda one: one[1])
    if gain > 1:
        yield f"The largest gain: {best.title}, {times(gain)} times the baseline."
    if loss < 1:
        yield f"The largest loss: {worst.title}, {times(loss)} times the baseline."


def numbers_of(effect: Effect | None) -> Numbers:
    """Of the changed arm against the baseline; ``MISSING`` where it is not known."""
    if effect is None:
        return Numbers(*[MISSING] * 4)
    return Numbers(ratio_text(effect), lost(effect.accuracy_lost), memory(effect), _start(effect))


def ratio_text(effect: Effect | None) -> str:
    """``1.35 (1.30 to 1.41)``."""
    ratio, interval = ratio_and_interval(effect)
    return ratio if interval == MISSING else f"{ratio} ({interval})"


def ratio_and_interval(effect: Effect | None) -> tuple[str, str]:
    """Each is ``MISSING`` where it is not known."""
    if effect is None or effect.ratio is None:
        return MISSING, MISSING
    if effect.low is None or effect.high is None:
        return times(effect.ratio), MISSING
    return times(effect.ratio), f"{times(effect.low)} to {times(effect.high)}"


def times(value: float) -> str:
    """A ratio."""
    if value < 0.1:
        return f"{value:.2g}"
    return f"{value:,.{2 if value < 10 else 1 if value < 100 else 0}f}"


def lost(share: float | None) -> str:
    """A share of answers, 0 to 1; what is left of rounding is none."""
    if share is None:
        return MISSING
    if share <= 0:
        return "0"
    return f"below {_FAINTEST:.2%}" if share < _FAINTEST else f"{share:.{2 if share < 0.1 else 1}%}"


def memory(effect: Effect) -> str:
    """``+12 MB``."""
    if effect.memory_bytes is None:
        return MISSING
    sign = "-" if effect.memory_bytes < 0 else "+"
    return "0 B" if effect.memory_bytes == 0 else f"{sign}{size(abs(effect.memory_bytes))}"


def _start(effect: Effect) -> str:
    if effect.start_s is None:
        return MISSING
    return f"{effect.start_s:+.2f} s" if abs(effect.start_s) >= 0.005 else "0 s"


def measure(record: ExperimentRecord) -> str:
    """What the ratio is of, as the head of a column."""
    return "Throughput" if record.measure == "throughput" else record.measure


def stated(record: ExperimentRecord) -> str:
    """What people say the ratio is."""
    return usual_text(record.usual)


def off_by(combination: Combination) -> float | None:
    """Measured over predicted, less 1."""
    effect = combination.experiment.effect
    if effect is None or effect.ratio is None:
        return None
    return effect.ratio / combination.predicted - 1


def combination_sentence(combination: Combination) -> str:
    """The product of the parts, and what was measured of all together."""
    record, predicted = combination.experiment, combination.predicted
    paper = (
        f"on paper the {len(combination.parts)} effects multiply to {times(predicted)} times the "
        "default"
    )
    error, effect = off_by(combination), record.effect
    if error is None or effect is None:
        return f"{paper.capitalize()}; together they could not be measured: {reason_of(record)}"
    off = f"{abs(error):.0%} {'less' if error < 0 else 'more'} than that"
    got = f"together they give {ratio_text(effect)}"
    if effect.low is None or effect.high is None:
        told = f"{paper.capitalize()}; {got}, {off}, from too few repeats to be sure"
    elif effect.low <= predicted <= effect.high:
        told = f"{paper.capitalize()}; {got}, which does not contradict it"
    else:
        told = f"Effects do not simply multiply: {paper}, {got}, {off}"
    breaks = f". Together they break accuracy: {reason_of(record)}"
    return told + (breaks if record.verdict == "breaks accuracy" else ".")


def again(playbook: Playbook, name: str, folder: str) -> str:
    """The command that measures one experiment again."""
    return f"{playbook.command} --only {shlex.quote(name)} --out {shlex.quote(folder)}"


def machine_lines(playbook: Playbook) -> tuple[str, str]:
    """The machine with its CPUs, and the versions, each in one line."""
    machine = playbook.machine
    where = (
        f"{machine.cpu_model}, {machine.usable_cpus} CPUs (server "
        f"{cpu_numbers(playbook.server_cpus)}, clients {cpu_numbers(playbook.client_cpus)}), "
        f"{', '.join(machine.gpus) or 'no GPU'}, {size(machine.memory_bytes)}, {machine.os}"
    )
    versions = ", ".join(f"{name} {version}" for name, version in playbook.versions.items())
    return where, f"{versions}; commit {playbook.commit or 'unknown'}"
