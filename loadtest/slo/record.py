"""A search as ``summary.json`` keeps it, with its answer in one sentence. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator

from loadtest.objective import Evidence, Objectives, Percentile
from loadtest.rounding import four_digits
from loadtest.searched import AnswerRecord, LatencyRecord, ProbeRecord, SearchRecord
from loadtest.slo.search import Answer
from loadtest.slo.state import Judged, State

_NS_PER_MS = 1e6


def record_of(state: State) -> SearchRecord:
    """What is known by now; a search that is not complete is told as such."""
    answer, complete = Answer("open", None, None), False
    if state.bracketed:
        answer, complete = state.search.answer, state.search.next_rps is None
    return SearchRecord(
        backend=state.backend,
        repeat=state.repeat,
        objectives=state.objectives.texts,
        complete=complete,
        closed=tuple(
            _closed(state.objectives, one) for one in state.closed.values() if state.repeat == 1
        ),
        probes=tuple(_probe(state.objectives, i, one) for i, one in enumerate(state.probes, 1)),
        answer=_answer(state, answer, complete=complete),
    )


def _probe(objectives: Objectives, number: int, judged: Judged) -> ProbeRecord:
    trial, judgement = judged.seen.trial, judged.judgement
    return ProbeRecord(
        number=number,
        trial=trial.id,
        rate_rps=trial.level,
        verdict=judgement.verdict,
        why=judgement.why,
        cut=trial.cut is not None,
        window_s=trial.window_s,
        requests=trial.planned,
        failed=trial.failed,
        latencies=tuple(_latency(one, judged.seen) for one in objectives.percentiles),
        found=tuple(found.told for found in judgement.findings),
    )


def _closed(objectives: Objectives, seen: Evidence) -> ProbeRecord:
    trial = seen.trial
    return ProbeRecord(
        number=0,
        trial=trial.id,
        rate_rps=trial.outcomes["ok"] / trial.window_s,
        users=int(trial.level),
        verdict=None,
        why="; ".join(trial.reasons),
        cut=False,
        window_s=trial.window_s,
        requests=trial.planned,
        failed=trial.failed,
        latencies=tuple(_latency(one, seen) for one in objectives.percentiles),
        found=tuple(found.told for found in objectives.hold(seen)),
    )


def _latency(objective: Percentile, seen: Evidence) -> LatencyRecord:
    samples = seen.samples
    bounded = samples.percentile(objective.quantile, independent=True)
    value_ns = None
    if seen.trial.sent and samples.count > seen.trial.outcomes["not_sent"]:
        value_ns = samples.at_rank(max(math.ceil(objective.quantile * samples.count), 1))
    return LatencyRecord(
        name=objective.name,
        limit_ms=objective.limit_ns / _NS_PER_MS,
        value_ms=_ms(value_ns),
        low_ms=_ms(bounded.low) if bounded else None,
        high_ms=_ms(bounded.high) if bounded else None,
    )


def _ms(duration_ns: int | None) -> float | None:
    return None if duration_ns is None else duration_ns / _NS_PER_MS


def _answer(state: State, answer: Answer, *, complete: bool) -> AnswerRecord:
    asked = " and ".join(state.objectives.texts)
    best = None if answer.met_rps is not None else _best_seen(state)
    reasons = "; ".join(answer.reasons)
    sentence = " ".join(_sentences(state.backend, asked, answer, complete=complete))
    if reasons:
        sentence += f" {reasons[0].upper()}{reasons[1:]}."
    if best and answer.kind == "not reachable":
        sentence += f" The best seen: {best}."
    return AnswerRecord(
        kind=answer.kind,
        rate_rps=answer.met_rps,
        missed_rps=answer.missed_rps,
        sentence=sentence,
        reasons=answer.reasons,
        best_seen=best,
    )


def _sentences(label: str, asked: str, answer: Answer, *, complete: bool) -> Iterator[str]:
    met, missed = answer.met_rps, answer.missed_rps
    if answer.kind == "not reachable":
        yield f"Not reachable: {label} met {asked} at no rate that was probed."
    elif met is None:
        yield f"No answer{'' if complete else ' yet'}: {label} met {asked} at no rate so far."
    else:
        limit = "" if answer.kind == "found" else " at least"
        beyond = (
            ""
            if missed is None
            else f" and not at {four_digits(missed)}, {missed / met - 1:.1%} more"
        )
        yield f"{label} meets {asked} up to {four_digits(met)} requests/s{limit}{beyond}."
    if not complete:
        yield "The search is not complete."


def _best_seen(state: State) -> str | None:
    """The window with the least of the first percentile, in words."""
    first = state.objectives.percentiles[0]
    windows = [(one, f"with {one.trial.level:g} at a time") for one in state.closed.values()]
    windows += [(one.seen, f"at {one.seen.trial.level:g} requests/s") for one in state.probes]
    told = [
        (found.value_ms, f"{first.name} {found.value_ms:.3g} ms {where}")
        for one, where in windows
        if (found := _latency(first, one)).value_ms is not None
    ]
    return min(told)[1] if told else None
