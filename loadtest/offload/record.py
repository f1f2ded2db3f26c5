"""``offload.json``: what was asked, what both sides gave, what an outage does, and the decision."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from loadtest.record import Record
from loadtest.results import Manifest, Verdict

NAME = "offload.json"
OFFLOAD_VERSION = 1

Side = Literal["onboard", "offload"]


class RepeatRecord(Record):
    """One window on one server start. Frames are those that were due in it."""

    trial: str
    frames: int
    missed_share: float = Field(description="answered after the deadline, or never")
    dropped_share: float = Field(description="given up by the camera's policy")
    age_p50_ms: float | None = Field(description="due to answered; null for too few samples")
    age_p99_ms: float | None
    delivered_fps: float = Field(description="answers per second of one camera, mean over cameras")
    longest_gap_ms: float | None = Field(description="between answers of one camera")
    joules_per_inference: float | None = Field(description="of this machine, gross")
    joules_missing: str | None = Field(default=None, description="why it is null")
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    counts: bool = Field(description="VALID, or INVALID because the answers came too late")


class SideRecord(Record):
    """One of the two, over its repeats; medians of those that count."""

    side: Side
    arm: str = Field(description="how its trials are called")
    backend: str
    link: str = Field(description="in words; none for onboard")
    here: bool = Field(description="whether it was served by this machine")
    repeats: tuple[RepeatRecord, ...]
    excluded: str | None = Field(default=None, description="why it was not measured")
    missed_share: float | None = None
    dropped_share: float | None = None
    age_p50_ms: float | None = None
    age_p99_ms: float | None = None
    delivered_fps: float | None = None
    longest_gap_ms: float | None = None
    joules_per_inference: float | None = None
    joules_missing: str | None = None


class DecisionRecord(Record):
    """Which side, by what, and how surely."""

    better: Side | None = Field(description="null where neither is")
    by: Literal["missed deadlines", "p99 frame age", "median frame age"] | None = Field(
        description="the first of the two that differs; the median where there is no p99"
    )
    ratio: float | None = Field(
        description="offload over onboard: of the frames in time, or of the age"
    )
    low: float | None = Field(description="97.5% interval, since two measures are tried")
    high: float | None
    sentence: str


class Spread(Record):
    """Over the simulated runs: their median, and what 18 of 20 lie between."""

    value: float
    low: float
    high: float


class OutcomeRecord(Record):
    """Of one way to meet an outage."""

    mode: Literal["onboard", "offload", "fallback"]
    missed_share: Spread
    missed_in_outage_share: Spread = Field(description="of the frames due while the link was down")
    unanswered_share: Spread
    onboard_share: Spread = Field(description="of the answers")
    age_p99_ms: Spread
    longest_gap_ms: Spread
    line: tuple[tuple[float, float], ...] = Field(
        description="s, and ms that the first camera's newest answer was old then; of one run"
    )


class OutageRecord(Record):
    """A simulation with service times drawn from both sides' windows."""

    length_s: float
    start_s: float
    outage_s: float
    runs: int
    remote_ms: float = Field(description="median time at the server, the link's own taken off")
    onboard_ms: float
    outcomes: tuple[OutcomeRecord, ...]
    sentence: str


class OffloadRecord(Record):
    offload_version: int = OFFLOAD_VERSION
    manifest: Manifest
    cameras: int
    fps: float
    policy: str
    deadline_ms: float
    sides: tuple[SideRecord, ...]
    decision: DecisionRecord
    outage: OutageRecord | None = None
    outage_missing: str | None = Field(default=None, description="why it is null")
    notes: tuple[str, ...] = ()
    complete: bool = Field(description="whether no window is missing")
