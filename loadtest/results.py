"""What a results folder holds: the schema of every file. A field's unit stands in its name."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field, field_validator

from loadtest.delivered import FramesRecord
from loadtest.explained import Breakdown, Heatmap, ServerTimings, Spectrum, Start
from loadtest.record import Record
from loadtest.resources.record import ResourceUse
from loadtest.searched import SearchRecord
from serving.models.variants.record import VariantRecord

SCHEMA_VERSION = 5

OUTCOMES = (
    "ok",
    "wrong_answer",
    "client_fault_4xx",
    "server_fault_5xx",
    "timeout",
    "connection_error",
    "unfinished",
    "not_sent",
    "dropped",
)
"""Every request that was due ends in exactly one of these. ``not_sent``: every connection that the
generator may open was busy, or a stream never came to it. ``dropped``: a frame that its camera gave
up by its policy. The counts of the others add up to the number sent."""

NEVER_SENT = ("not_sent", "dropped")

GIVEN_UP = ("timeout", "unfinished")
IN_PERCENTILES = ("ok", *GIVEN_UP)
"""What percentiles are made of: what was given up enters as at least its time limit."""

Verdict = Literal["VALID", "INVALID"]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)


class Machine(Record):
    """The machine that everything ran on."""

    hostname: str
    os: str
    python: str
    cpu_model: str
    usable_cpus: int
    cpu_source: str = Field(description="where usable_cpus came from: affinity or a cgroup quota")
    memory_bytes: int
    gpus: tuple[str, ...] = ()


class Settings(Record):
    """What was asked for. A run resumes only under equal settings."""

    model: str
    backends: tuple[str, ...]
    scenario: str = "closed"
    parameters: dict[str, str] = Field(default={}, description="of the scenario")
    level_name: str = Field(default="users", description="what a level counts, with its unit")
    levels: tuple[float, ...]
    duration_s: float = Field(description="length of one measured window")
    repeats: int
    timeout_s: float
    batch_size: int = Field(default=1, description="rows in one request")
    seed: int
    driver: Literal["locust", "loadgen"] = "locust"
    engine: str = "native"
    encoding: Literal["binary", "json", "grpc"] = "binary"
    shared_memory: bool = Field(default=False, description="inputs through system shared memory")
    headers: tuple[str, ...] = Field(default=(), description="names only; values may be secrets")
    connections: int = Field(default=1024, description="most that one generator opens")
    link: str | None = Field(
        default=None, description="profile or file of the link that requests cross; null for none"
    )
    link_per_connection: bool = Field(
        default=False, description="each connection has a link of its own; else all share one"
    )
    processes: int = Field(default=1, description="generator processes")
    until_confident: float | None = Field(
        default=None, description="lengthen a window until p99 is known within this share"
    )
    limit_s: float = Field(default=300.0, description="longest that a window may become")
    slo_ms: float | None = Field(default=None, description="response time objective")
    objectives: tuple[str, ...] = Field(
        default=(), description="what a search for the highest rate must keep; it finds the levels"
    )
    keep_requests: bool = Field(
        default=False, description="keep every request of every window, not histograms alone"
    )
    setting: dict[str, str] = Field(default={}, description="knobs that were turned on the server")
    open_windows: int = Field(
        default=0, description="of a profile: open loops behind the closed ones of each start"
    )
    rank_unlike: bool = Field(
        default=False, description="rank backends that do not serve under equal conditions"
    )
    server_cpus: tuple[int, ...]
    client_cpus: tuple[int, ...]

    @property
    def slo_ns(self) -> int | None:
        return None if self.slo_ms is None else round(self.slo_ms * 1e6)

    @property
    def planned_trials(self) -> int:
        """Windows in the whole run, of every backend."""
        return len(self.backends) * (len(self.levels) + self.open_windows) * self.repeats


class Wire(Record):
    """How requests travel. All backends of a run share it, so no ranking mixes unlike ones."""

    protocol: str = "v2 HTTP"
    encoding: str = "binary tensors"
    compression: str = "none"
    connections: str = "one per user, kept alive"
    call_style: str = "prepared bytes, native engine"
    link: str = Field(default="none", description="what a link adds to loopback, in words")
    request_bytes: int = 0


class LinkRecord(Record):
    """The link of a run as it was relayed; ``docs/links.md`` says what each value does."""

    name: str
    one_way_delay_ms: float
    jitter_ms: float
    loss_share: float
    stall_ms: float | None = Field(description="null where it follows from the round trip")
    uplink_bps: float
    downlink_bps: float
    outages: str
    each_connection: bool
    sources: dict[str, str] = Field(description="value to where it is from, or 'assumption'")
    facts: dict[str, str] = Field(description="the values in words, each with its source")


class Manifest(Record):
    """Written once, before any load."""

    schema_version: int = SCHEMA_VERSION
    created: str = Field(description="ISO 8601 with offset")
    command: str = Field(description="the command that repeats this run")
    infersweep_version: str
    commit: str | None = Field(description="git commit of infersweep, null outside a checkout")
    machine: Machine
    versions: dict[str, str]
    settings: Settings
    model_version: int
    model_sha256: str
    variant: VariantRecord | None = Field(
        default=None, description="what the model loses against its parent, where it has one"
    )
    wire: Wire
    link: LinkRecord | None = Field(default=None, description="null where requests cross none")


class Parity(Record):
    """Answers of one backend against the in-process reference session."""

    passed: bool
    rows: int = Field(description="rows compared, alone and batched together")
    largest_difference: float | None = Field(description="absolute; null when nothing came back")
    tolerance: str
    detail: str = Field(default="", description="what differed, when it failed")


class BackendRecord(Record):
    """What served under one label, as found when it was first started."""

    label: str
    facts: dict[str, str]
    warnings: tuple[str, ...] = ()
    parity: Parity | None = Field(description="null where the backend is exempt")
    start_s: float | None = Field(description="process start to ready; null for a remote server")
    excluded: str | None = Field(default=None, description="why it was not measured")


class Trial(Record):
    """One measured window against one server."""

    id: str
    backend: str
    scenario: str
    level: float
    repeat: int
    probe: int | None = Field(
        default=None, description="of a search: its place there, 0 for the closed loops in front"
    )
    started: str
    window_started_unix_s: float | None = Field(
        default=None, description="null in results of schema 2 and older"
    )
    window_s: float = Field(description="length of the measured window as it really was")
    warmup_s: float
    warmup_requests: int
    warmup_settled: bool = Field(description="whether warm-up ended by its rule, not its limit")
    planned: int = Field(description="requests that were due in the window")
    outcomes: dict[str, int]
    completed: tuple[int, ...] = Field(description="right answers in each second of the window")
    rows_per_request: int
    mean_in_flight: float = Field(description="time in flight of all requests per window time")
    late: int = Field(description="requests that left late by the rule of docs/methodology.md")
    lateness_p99_ms: float = Field(description="99% of requests left within this of being due")
    client_cpu: float = Field(description="generator's CPU time per CPU given and window time, 0-1")
    ceiling_rps: float | None = Field(
        default=None, description="what this generator reaches with this model on the null server"
    )
    server_cpu: float | None = Field(
        default=None, description="servers' CPU time per CPU given and window time, 0-1"
    )
    server_rss_bytes: int | None = None
    server_ended: str | None = Field(
        default=None, description="how the server ended, when it did not survive the window"
    )
    resources: ResourceUse | None = Field(
        default=None, description="null in results of schema 2 and older"
    )
    server_timings: ServerTimings | None = Field(
        default=None, description="null where the server does not tell, and in older results"
    )
    server_timings_missing: str | None = Field(
        default=None, description="why the server's timings are null; null in older results"
    )
    floor_ms: float | None = Field(
        default=None,
        description="median service time of one user's like requests on the null server",
    )
    encode_ns: float | None = Field(
        default=None, description="median time to encode one request, which was done beforehand"
    )
    clock_error_s: float = Field(
        default=0.0, description="how far the start may differ between generators"
    )
    cut: str | None = Field(default=None, description="why the window was ended early, if it was")
    frames: FramesRecord | None = Field(
        default=None, description="of the streams of an open loop; null without streams"
    )
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    @field_validator("outcomes")
    @classmethod
    def _counts_all_outcomes(cls, counts: dict[str, int]) -> dict[str, int]:
        """Whoever reads a trial may ask for each of them; older results drop no frames."""
        known = {**counts, "dropped": counts.get("dropped", 0)}
        missing = [name for name in OUTCOMES if name not in known]
        if missing:
            raise ValueError(f"outcomes lack {', '.join(missing)}")
        return known

    @property
    def sent(self) -> int:
        return self.planned - sum(self.outcomes[name] for name in NEVER_SENT)

    @property
    def failed(self) -> int:
        """Without a right answer, but for frames that were dropped on purpose."""
        return self.planned - self.outcomes["ok"] - self.outcomes["dropped"]


class Quantile(Record):
    """One percentile with the bounds that hold at 99% each.

    ``high_ms`` is null where the samples give no upper bound. ``at_least``: the value is a time
    limit that was reached, so the truth is that or more.
    """

    value_ms: float
    low_ms: float
    high_ms: float | None
    at_least: bool = False


class Percentiles(Record):
    """Null where there are too few samples for a 99% bound."""

    p50: Quantile | None = None
    p90: Quantile | None = None
    p95: Quantile | None = None
    p99: Quantile | None = None
    p99_9: Quantile | None = None
    p99_99: Quantile | None = None


class Point(Record):
    """One backend at one level, over all repeats.

    Rates are the median over repeats; ``inferences_per_s_range`` is their lowest and highest.
    Percentiles are computed once, from the merged histograms. All of them come from the VALID
    repeats; where there is none, from all repeats, and the point is INVALID.
    """

    scenario: str
    level: float
    repeats: int
    samples: int = Field(description="requests behind the percentiles")
    planned_per_s: float = Field(description="requests that were due, per second")
    requests_per_s: float
    inferences_per_s: float
    inferences_per_s_range: tuple[float, float]
    inferences_per_s_repeats: tuple[float, ...] = Field(
        default=(), description="of each VALID repeat; empty in results of schema 4 and older"
    )
    response_time_ms: Percentiles
    service_time_ms: Percentiles
    failure_response_ms: float | None = Field(
        default=None, description="median response time of requests that were answered with a fault"
    )
    first_byte_p50_ms: float | None = None
    lateness_p99_ms: float | None = None
    largest_response_ms: float | None
    outcomes: dict[str, int]
    warmup_s: float = Field(description="longest of the repeats")
    client_cpu: float | None
    server_cpu: float | None
    server_rss_bytes: int | None
    breakdown: Breakdown | None = Field(
        default=None, description="null without a VALID repeat, and in older results"
    )
    resources: ResourceUse | None = Field(
        default=None, description="of the repeat with the median rate, the lower one of two"
    )
    frames: FramesRecord | None = Field(
        default=None, description="of all repeats shown; null without streams"
    )
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


class BackendSummary(Record):
    label: str
    facts: dict[str, str]
    warnings: tuple[str, ...]
    parity: Parity | None
    start_s: float | None
    excluded: str | None
    points: tuple[Point, ...]
    starts: tuple[Start, ...] = Field(default=(), description="in the order they happened")
    spectrum: Spectrum | None = Field(default=None, description="null without a VALID point")
    heatmap: Heatmap | None = Field(default=None, description="null without a VALID point")
    configuration: str | None = Field(
        default=None, description="config.pbtxt as it was served; null where none was written"
    )


class Contrast(Record):
    """One backend against the first of the ranking, from one value per repeat of each."""

    ratio: float = Field(description="geometric mean over that of the first")
    low: float | None = Field(description="95% interval; null for fewer than three repeats")
    high: float | None
    verdict: Literal["faster", "slower", "no significant difference", "too few repeats"]


class Rank(Record):
    """A backend at its best: its best VALID point, or the highest rate within the objectives."""

    backend: str
    level: float
    inferences_per_s: float
    inferences_per_s_range: tuple[float, float]
    repeats: tuple[float, ...] = Field(
        default=(), description="inferences per second, one value per repeat"
    )
    p99_ms: float | None
    failed_share: float | None = Field(
        default=None, description="of the requests that were due; null in results of schema 4"
    )
    against_first: Contrast | None = Field(default=None, description="null for the first")


class Ranking(Record):
    """By most inferences per second, at any VALID point or within the objectives.

    ``winner`` is null unless it is faster than each of the others by an interval that leaves 1 out
    (``loadtest.significance``).
    """

    winner: str | None
    sentence: str
    rows: tuple[Rank, ...]
    unranked: dict[str, str] = Field(description="backend to the reason it has no rank")


class Summary(Record):
    """``summary.json``."""

    schema_version: int = SCHEMA_VERSION
    manifest: Manifest
    complete: bool = Field(description="whether every planned trial was run")
    planned_trials: int
    finished_trials: int
    backends: tuple[BackendSummary, ...]
    searches: tuple[SearchRecord, ...] = ()
    ranking: Ranking

    @property
    def objectives(self) -> tuple[str, ...]:
        return self.manifest.settings.objectives


Window = dict[str, str]
"""Outcome or measure to an HDR histogram in its base64 form (V2, zlib)."""


class Histograms(Record):
    """Latencies of one trial in nanoseconds, per one-second window since the window's start.

    ``lateness`` is sent minus due, ``first_byte`` first byte minus sent, both of the whole trial.
    ``ages`` are of the delivered frames of each stream, from due to done, of the whole trial.
    """

    trial: str
    response_time: tuple[Window, ...]
    service_time: tuple[Window, ...]
    lateness: str
    first_byte: str
    ages: tuple[str, ...] = ()
