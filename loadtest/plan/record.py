"""``plan.json``: what was asked, what each option answers, and how the answer was tested."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from loadtest.record import Record

PLAN_VERSION = 1


class Range(Record):
    """Over simulated windows: their median, and what 18 of 20 lie between."""

    value: float
    low: float
    high: float


class Asked(Record):
    """What a plan is for."""

    model: str
    demand: str = Field(description="in words: 24 cameras at 10 fps, random phase, latest-only")
    rate_rps: float = Field(description="mean over the demand's busiest stretch")
    cameras: int | None = None
    fps: float | None = None
    objective: str = Field(description="as given: p99<=150ms; of cameras it bounds the frame age")
    link: str | None = None
    link_sources: dict[str, str] = Field(default={}, description="value to source or 'assumption'")
    most_lost: float = Field(default=0.0, description="share of requests or frames, at most")
    survive: int = Field(description="replicas that may fail at once")
    headroom: float = Field(description="share of the usable rate that stays unused, 0 to 1")
    balance: str
    window_s: float = Field(description="length of one simulated window")
    seed: int


class CurvePoint(Record):
    """One replica at one load."""

    utilisation: float = Field(description="of the rate at which it saturates")
    rate_rps: float
    response_ms: Range = Field(description="the objective's percentile, without the link")


class FleetPoint(Record):
    """So much demand needs so many replicas, with the failures that must be survived."""

    rate_rps: float
    replicas: int


class FailureForecast(Record):
    """One after the other: before, while the balancer does not know yet, after it knows."""

    failed: int = Field(description="replicas that fail at once")
    lost_share: float = Field(description="of requests, until the balancer knows")
    detect_s: float = Field(description="how long that is (assumption unless given)")
    response_ms: Range | None = Field(description="with those left; null where they cannot keep up")
    utilisation: float
    holds: bool
    restart_s: float | None = Field(description="measured start of a replacement")


class BurstForecast(Record):
    factor: float = Field(description="times the rate")
    length_s: float
    response_ms: Range | None = Field(
        description="of what came within the burst; null where nothing was answered"
    )
    recovery_s: float | None = Field(
        description="until waits are as before; null: not within the window"
    )
    holds: bool


class FramesForecast(Record):
    """Of all cameras together."""

    delivered_fps: Range = Field(description="of one camera, mean over cameras")
    dropped_share: Range
    missed_share: Range | None = Field(
        description="older than the objective's limit or never there"
    )
    age_p50_ms: Range
    age_p99_ms: Range | None
    longest_gap_ms: Range


class WireCost(Record):
    """What one request weighs on the link."""

    payload: str = Field(description="float32 tensor, uint8 tensor, JPEG")
    request_bytes: int
    uplink_ms: float = Field(description="one message on an empty uplink, without delay")
    uplink_share: float = Field(
        description="of one camera's uplink at the demand; above 1 it cannot"
    )


class EnergyForecast(Record):
    """Of one device at the planned load."""

    watts: float
    gross_j_per_inference: float
    net_j_per_inference: float | None
    inferences_per_wh: float
    flight_time_lost_s: float | None = Field(
        default=None, description="of a flight at the given hover power and battery"
    )


class Crosscheck(Record):
    """A closed form beside the simulation, both of the mean response time."""

    name: str = Field(description="with its source")
    value_ms: float
    simulated_ms: float
    note: str = ""


class Option(Record):
    """One profile's answer; ``replicas`` is null where there is no number."""

    backend: str
    machine: str
    profile: str = Field(description="the file")
    replicas: int | None
    why: str = Field(description="how the number came about, or why there is none")
    usable_rps: float | None = Field(description="highest measured rate that meets the objective")
    peak_rps: float = Field(description="highest measured rate at all")
    utilisation: float | None = None
    response_ms: Range | None = Field(
        default=None, description="the objective's percentile at the planned load, with the link"
    )
    frames: FramesForecast | None = None
    memory_bytes: int | None = Field(default=None, description="of one replica")
    energy: EnergyForecast | None = None
    energy_missing: str | None = None
    cost_per_million: float | None = Field(
        default=None, description="inferences, where prices are given"
    )
    currency: str | None = None
    breaks_first: str | None = None
    failure: FailureForecast | None = None
    burst: BurstForecast | None = None
    wire: tuple[WireCost, ...] = ()
    curve: tuple[CurvePoint, ...] = ()
    fleet: tuple[FleetPoint, ...] = ()
    crosschecks: tuple[Crosscheck, ...] = ()
    scalability: str | None = Field(default=None, description="the law fitted to the sweep")
    warnings: tuple[str, ...] = ()


class ScalingPoint(Record):
    """So many instances of one server on one machine."""

    instances: int
    peak_rps: float = Field(description="highest measured rate")
    efficiency: float = Field(description="rate over that of as many single ones")
    gain_each: float | None = Field(
        description="what each added instance brought, as a share of one; null for the first"
    )
    knee: bool = Field(description="the number with the highest rate")


class Verification(Record):
    """One held-out load on the real server: what was predicted for it before, what came."""

    backend: str
    profile: str = Field(description="the file")
    load: str = Field(description="in words")
    rate_rps: float
    utilisation: float
    percentile: str
    predicted_ms: Range
    measured_ms: float
    measured_low_ms: float
    measured_high_ms: float | None
    error: float = Field(description="prediction over measurement, less 1")
    drift: float | None = Field(
        description="speed of the machine against that of the profile, less 1; null where unknown"
    )
    verdict: Literal["within 15%", "missed", "INVALID"]
    reasons: tuple[str, ...] = ()


class Plan(Record):
    plan_version: int = PLAN_VERSION
    created: str
    command: str
    infersweep_version: str
    asked: Asked
    options: tuple[Option, ...]
    chosen: str | None = Field(
        description="profile of the cheapest option, null where none answers"
    )
    sentence: str = Field(description="the answer, with its uncertainty")
    verifications: tuple[Verification, ...] = ()
    scaling: dict[str, tuple[ScalingPoint, ...]] = Field(
        default={}, description="by backend and machine, where profiles differ in their instances"
    )
