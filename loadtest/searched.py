"""What an objective search found, told so that page, figures and terminal say the same."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from loadtest.record import Record

ProbeVerdict = Literal["met", "costly", "missed", "void"]
"""``costly``: all is met but what a higher rate makes cheaper, joules per inference. ``void``: the
window is INVALID for a reason that is not the load."""
AnswerKind = Literal["found", "at least", "not reachable", "open"]


class LatencyRecord(Record):
    """One percentile that is bounded; times in milliseconds."""

    name: str
    limit_ms: float
    value_ms: float | None = Field(description="by nearest rank, however few the samples are")
    low_ms: float | None = Field(
        description="99% bounds of independent samples; null where there are too few"
    )
    high_ms: float | None


class ProbeRecord(Record):
    """One window at one rate, or one of the closed loops in front of the search."""

    number: int = Field(description="from 1; 0 for the closed loops")
    trial: str
    rate_rps: float = Field(description="planned; of a closed loop what was answered")
    users: int | None = Field(default=None, description="of a closed loop")
    verdict: ProbeVerdict | None = Field(description="null for the closed loops")
    why: str
    cut: bool = Field(description="whether the window was ended early")
    window_s: float
    requests: int = Field(description="due in the window")
    failed: int = Field(default=0, description="of them without a right answer")
    latencies: tuple[LatencyRecord, ...]
    found: tuple[str, ...] = Field(description="every objective held against it, in words")


class AnswerRecord(Record):
    kind: AnswerKind
    rate_rps: float | None = Field(description="highest that met everything")
    missed_rps: float | None = Field(description="lowest above it that did not")
    sentence: str
    reasons: tuple[str, ...]
    best_seen: str | None = Field(default=None, description="where nothing met everything")


class SearchRecord(Record):
    """One search on one server start; a repeat begins where the first search ended."""

    backend: str
    repeat: int
    objectives: tuple[str, ...]
    complete: bool = Field(description="whether no probe is missing")
    closed: tuple[ProbeRecord, ...]
    probes: tuple[ProbeRecord, ...]
    answer: AnswerRecord

    @property
    def found_rps(self) -> float | None:
        """The answer's rate, where there is one: what is left open lies between any two rates."""
        answered = self.complete and self.answer.kind in ("found", "at least")
        return self.answer.rate_rps if answered else None

    @property
    def best(self) -> ProbeRecord | None:
        """The last probe at the rate that was found."""
        met = [p for p in self.probes if p.rate_rps == self.found_rps and p.verdict == "met"]
        return met[-1] if met else None
