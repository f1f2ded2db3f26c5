"""What a playbook leaves behind: one record per experiment, and one of all together."""

from __future__ import annotations

from typing import Literal, get_args

from pydantic import Field

from loadtest.record import Record
from loadtest.results import SCHEMA_VERSION, Machine

NAME = "playbook.json"

Verdict = Literal[
    "holds",
    "holds in part",
    "no difference",
    "opposite",
    "breaks accuracy",
    "cannot be measured here",
]
VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

MeasureName = Literal["throughput", "p50", "p99", "slowest"]


class Answers(Record):
    """The answers of one arm against the reference session of the model."""

    right: bool = Field(description="within the tolerance of equal answers")
    inputs: int
    largest_difference: float | None = Field(description="absolute; null when nothing came back")
    lost: float = Field(default=0.0, description="share of inputs answered differently, 0 to 1")
    lost_measure: str = Field(default="", description="what ``lost`` is a share of")
    detail: str = Field(default="", description="what differed")


class WindowRecord(Record):
    """One measured window of one arm."""

    start: int = Field(description="which start of the arm, from 1")
    repeat: int = Field(description="which window of that start, from 1")
    count: int = Field(description="requests or calls")
    inferences_per_s: float
    p50_ms: float
    p99_ms: float | None = Field(description="null where too few samples bound it")
    slowest_ms: float
    reasons: tuple[str, ...] = Field(default=(), description="why it does not count")


class ArmRecord(Record):
    """One of those that were measured against each other."""

    name: str
    what: str = Field(description="in words")
    windows: tuple[WindowRecord, ...] = ()
    start_s: tuple[float, ...] = Field(default=(), description="to ready, of each start")
    rss_bytes: int | None = Field(default=None, description="largest after a window")
    answers: Answers | None = Field(default=None, description="null where they cannot change")
    facts: dict[str, str] = Field(default={}, description="what was found of it")


class Effect(Record):
    """A changed arm against the baseline. Ratios above 1 are better, of memory and start above 1
    more.
    """

    arm: str
    ratio: float | None = Field(description="null where nothing counts")
    low: float | None = Field(default=None, description="of the 95% interval")
    high: float | None = None
    repeats: int = Field(default=0, description="values of each side")
    memory_ratio: float | None = None
    memory_bytes: int | None = Field(default=None, description="changed minus baseline")
    start_s: float | None = Field(default=None, description="changed minus baseline")
    accuracy_lost: float | None = Field(default=None, description="share, null where it cannot be")


class ExperimentRecord(Record):
    """One claim, tested for one model on one machine."""

    schema_version: int = SCHEMA_VERSION
    name: str
    title: str
    claim: str
    usual: tuple[float, float | None] = Field(description="ratio that people state; null: no end")
    page: str = Field(description="of the documentation")
    measure: MeasureName
    unit: str
    model: str
    started: str
    took_s: float
    starts: int = Field(description="of each arm; repeats within one share what it started with")
    baseline: str = ""
    judged: str = Field(default="", description="the arm that the claim is about")
    arms: tuple[ArmRecord, ...] = ()
    effects: tuple[Effect, ...] = Field(default=(), description="of every arm but the baseline")
    verdict: Verdict
    sentence: str = Field(description="the verdict with its reason, for people")
    missing: str = Field(default="", description="why it cannot be measured here")
    failed: bool = Field(default=False, description="it broke, and may work when run again")
    warnings: tuple[str, ...] = ()

    @property
    def effect(self) -> Effect | None:
        """Of the arm that is judged."""
        return next((e for e in self.effects if e.arm == self.judged), None)


class Part(Record):
    """What one experiment gives to the combination."""

    experiment: str
    what: str
    ratio: float
    low: float
    high: float


class Combination(Record):
    """Everything that helped at once, against the default."""

    default: str
    combined: str
    parts: tuple[Part, ...]
    left_out: dict[str, str] = Field(default={}, description="experiment to why")
    predicted: float = Field(description="product of the ratios")
    experiment: ExperimentRecord = Field(description="default and combined, measured in turns")


class Playbook(Record):
    """All experiments of one model, largest effect first."""

    schema_version: int = SCHEMA_VERSION
    model: str
    model_sha256: str
    machine: Machine
    versions: dict[str, str]
    commit: str | None
    started: str
    server_cpus: tuple[int, ...]
    client_cpus: tuple[int, ...]
    pace: str = Field(description="starts, repeats and lengths, in words")
    command: str
    complete: bool
    experiments: tuple[ExperimentRecord, ...]
    combination: Combination | None = None
