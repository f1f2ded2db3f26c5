"""``search.json``: what a search found, told so that figure, page and terminal say the same."""

from __future__ import annotations

import math
from collections.abc import Iterator

from pydantic import Field

from loadtest.measures import four_digits
from loadtest.objective import Evidence, Objectives, Percentile
from loadtest.results import SCHEMA_VERSION, Manifest, Record
from loadtest.slo.search import Answer, Kind, Verdict
from loadtest.slo.state import Judged, State

FILE = "search.json"
_NS_PER_MS = 1e6


class LatencyRecord(Record):
    """One percentile that is bounded; times in milliseconds."""

    name: str
    limit_ms: float
    value_ms: float | None = Field(description="by nearest rank, however few the samples are")
    low_ms: float | None = Field(description="99% bounds; null where the samples give none")
    high_ms: float | None


class ProbeRecord(Record):
    """One window at one rate, or one of the closed loops in front of the search."""

    number: int = Field(description="from 1; 0 for the closed loops")
    trial: str
    rate_rps: float = Field(description="planned; of a closed loop what was answered")
    users: int | None = Field(default=None, description="of a closed loop")
    verdict: Verdict | None = Field(description="null for the closed loops")
    why: str
    cut: bool = Field(description="whether the window was ended early")
    window_s: float
    requests: int = Field(description="due in the window")
    latencies: tuple[LatencyRecord, ...]
    found: tuple[str, ...] = Field(description="every objective held against it, in words")


class AnswerRecord(Record):
    kind: Kind
    rate_rps: float | None = Field(description="highest that met everything")
    missed_rps: float | None = Field(description="lowest above it that did not")
    sentence: str
    reasons: tuple[str, ...]
    best_seen: str | None = Field(default=None, description="where nothing met everything")


class SearchRecord(Record):
    schema_version: int = SCHEMA_VERSION
    manifest: Manifest
    objectives: tuple[str, ...]
    complete: bool = Field(description="whether no probe is missing")
    closed: tuple[ProbeRecord, ...]
    probes: tuple[ProbeRecord, ...]
    answer: AnswerRecord


def record_of(manifest: Manifest, state: State) -> SearchRecord:
    """What is known by now; a search that is not complete is told as such."""
    answer, complete = Answer("open", None, None), False
    if state.bracketed:
        answer, complete = state.search.answer, state.search.next_rps is None
    return SearchRecord(
        manifest=manifest,
        objectives=state.objectives.texts,
        complete=complete,
        closed=tuple(_closed(state.objectives, one) for one in state.closed.values()),
        probes=tuple(_probe(state.objectives, i, one) for i, one in enumerate(state.probes, 1)),
        answer=_answer(manifest.settings.backends[0], state, answer, complete=complete),
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
        latencies=tuple(_latency(one, seen) for one in objectives.percentiles),
        found=tuple(found.told for found in objectives.hold(seen)),
    )


def _latency(objective: Percentile, seen: Evidence) -> LatencyRecord:
    samples, bounded = seen.samples, seen.samples.percentile(objective.quantile)
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


def _answer(label: str, state: State, answer: Answer, *, complete: bool) -> AnswerRecord:
    asked = " and ".join(state.objectives.texts)
    best = None if answer.met_rps is not None else _best_seen(state)
    reasons = "; ".join(answer.reasons)
    sentence = " ".join(_sentences(label, asked, answer, complete=complete))
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
