"""Onboard or offload: first by frames that were answered in time, then by the age of the slow ones.

Each repeat gives one value of each, as ``loadtest.significance`` says. Two measures are tried, so
each has half of the error that one would have. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from loadtest.offload.record import DecisionRecord, RepeatRecord, Side, SideRecord
from loadtest.significance import LEAST_REPEATS, Change, compare

CONFIDENCE = 0.975
"""With two measures, each at this, a difference that is none is found in 5% of cases at most."""


def decide(onboard: SideRecord, offload: SideRecord) -> DecisionRecord:
    """Which of two is to be preferred for its answers alone; power is no part of it."""
    for side, other in ((onboard, offload), (offload, onboard)):
        if side.excluded:
            return _none(f"{_name(side)} was not measured: {side.excluded}.")
        if not counting(side):
            why = next((r for one in side.repeats for r in one.reasons), "nothing was measured")
            return _none(f"No window of {_name(side)} counts: {why}.")
        if len(counting(side)) < LEAST_REPEATS:
            return _none(
                f"{len(counting(side))} repeats of {_name(side)} count; {LEAST_REPEATS} tell "
                f"something. {_seen(side)}, {_seen(other)}."
            )
    decided = _by_deadline(onboard, offload) or _by_age(onboard, offload)
    return decided or _none(
        f"No significant difference between onboard and offload: {_seen(onboard)}, "
        f"{_seen(offload)}."
    )


def counting(side: SideRecord) -> Sequence[RepeatRecord]:
    return [one for one in side.repeats if one.counts]


def _by_deadline(onboard: SideRecord, offload: SideRecord) -> DecisionRecord | None:
    in_time = [[1 - one.missed_share for one in counting(side)] for side in (onboard, offload)]
    shares = f"{_missed(onboard)} onboard and {_missed(offload)} offloaded"
    none_at_all = [not any(values) for values in in_time]
    if none_at_all == [True, True]:
        return None
    if any(none_at_all):
        # A ratio to nothing has no interval, and needs none.
        side: Side = "offload" if none_at_all[0] else "onboard"
        return DecisionRecord(
            better=side,
            by="missed deadlines",
            ratio=None,
            low=None,
            high=None,
            sentence=f"{_decided(side)}: of the frames {shares} missed the deadline.",
        )
    if not all(map(all, in_time)):
        # Of one side some repeats have none in time: no ratio tells more than the ages do.
        return None
    frames = min(one.frames for side in (onboard, offload) for one in counting(side))
    change = compare(*in_time, confidence=CONFIDENCE, resolution=1 / frames)
    return _of(change, "missed deadlines", f"of the frames {shares} missed the deadline", "in time")


def _by_age(onboard: SideRecord, offload: SideRecord) -> DecisionRecord | None:
    for field, name in (("age_p99_ms", "p99 frame age"), ("age_p50_ms", "median frame age")):
        ages_ms = [[getattr(one, field) for one in counting(side)] for side in (onboard, offload)]
        if all(age_ms is not None for of_side in ages_ms for age_ms in of_side):
            change = compare(*ages_ms, lower_is_better=True, confidence=CONFIDENCE)
            told = (
                f"the {name} is {median(ages_ms[0]):.3g} ms onboard and "
                f"{median(ages_ms[1]):.3g} ms offloaded{_undecided(onboard, offload)}"
            )
            return _of(change, name, told, "age")
    return None


def _undecided(onboard: SideRecord, offload: SideRecord) -> str:
    """What the first measure shows, and why it has not decided."""
    shares = [_missed(side) for side in (onboard, offload)]
    if shares[0] == shares[1]:
        return ""
    return f", while the missed shares ({' and '.join(shares)}) do not differ for sure"


def _of(change: Change, by: str, told: str, what: str) -> DecisionRecord | None:
    """``None`` where the interval holds 1."""
    if change.verdict not in ("faster", "slower") or change.low is None or change.high is None:
        return None
    side: Side = "offload" if change.verdict == "faster" else "onboard"
    return DecisionRecord.model_validate(
        {
            "better": side,
            "by": by,
            "ratio": change.ratio,
            "low": change.low,
            "high": change.high,
            "sentence": f"{_decided(side)}: {told} ({what}, offload over onboard "
            f"{change.ratio:.3g}, {CONFIDENCE:.1%} interval {change.low:.3g} to "
            f"{change.high:.3g}).",
        }
    )


def _none(sentence: str) -> DecisionRecord:
    return DecisionRecord(better=None, by=None, ratio=None, low=None, high=None, sentence=sentence)


def _decided(side: Side) -> str:
    return "Keep it onboard" if side == "onboard" else "Offload it"


def _missed(side: SideRecord) -> str:
    return f"{side.missed_share or 0:.2%}"


def _seen(side: SideRecord) -> str:
    name, age_ms = "p99", side.age_p99_ms
    if age_ms is None:
        name, age_ms = "median", side.age_p50_ms
    age = "" if age_ms is None else f" and a {name} age of {age_ms:.3g} ms"
    return f"{_name(side)} has {_missed(side)} missed{age}"


def _name(side: SideRecord) -> str:
    return f"{side.side} ({side.backend})"
