"""The file of a profile: samples, not means. A field's unit stands in its name."""

from __future__ import annotations

from pydantic import Field, model_validator

from loadtest.record import Record
from loadtest.results import Machine, Percentiles, Verdict

PROFILE_VERSION = 1


class SweepPoint(Record):
    """A closed loop of so many users, over all repeats."""

    users: int
    requests_per_s: float = Field(description="right answers, median over repeats")
    response_time_ms: Percentiles
    failed_share: float
    verdict: Verdict
    reasons: tuple[str, ...] = ()


class Repeat(Record):
    """What one start of the server showed.

    ``service_ns``: from batch size to the times for which such a batch occupied an instance.
    ``alone_ns``: response times of one user, who never meets another.
    ``idle_ns``: response times of requests of an open loop that found an instance idle.
    ``delay_ns``: what a lone request takes besides its service, on the way and in wake-ups; null
    where it is to be found from ``alone_ns`` and ``service_ns``.
    """

    service_ns: dict[int, tuple[int, ...]]
    alone_ns: tuple[int, ...]
    idle_ns: tuple[int, ...] = ()
    delay_ns: int | None = None
    start_s: float | None = Field(description="process start to the first right answer")
    rss_bytes: int | None


class Energy(Record):
    """Of the whole machine; ``None`` of it means that no power could be read."""

    idle_w: float | None
    active_w: float = Field(description="while every instance was busy")
    source: str


class Profile(Record):
    """One server of a model on one machine, with its scheduler as it was configured."""

    profile_version: int = PROFILE_VERSION
    created: str = Field(description="ISO 8601 with offset")
    command: str
    infersweep_version: str
    machine: Machine
    versions: dict[str, str]
    model: str
    model_version: int
    model_sha256: str
    backend: str
    facts: dict[str, str]
    setting: dict[str, str]
    servers: int | None = Field(description="servers behind the address; null where unknown")
    server_cpus: int
    configuration: str = Field(description="config.pbtxt as it was served")
    request_bytes: int
    reply_bytes: int
    window_s: float
    repeats: tuple[Repeat, ...]
    sweep: tuple[SweepPoint, ...]
    energy: Energy | None = None
    energy_missing: str | None = Field(default=None, description="why energy is null")
    verdict: Verdict
    reasons: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_samples_where_valid(self) -> Profile:
        lacking = [one for one in self.repeats if not (one.service_ns and one.alone_ns)]
        if self.verdict == "VALID" and (lacking or not self.repeats):
            raise ValueError("it is called VALID, and has a repeat without samples or no repeat")
        return self
