"""What one soak found: ``soak.json``."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from loadtest.explained import Start
from loadtest.record import Record
from loadtest.resources.record import BoardRecord
from loadtest.results import SCHEMA_VERSION, Manifest, Verdict

NAME = "soak.json"

SoakVerdict = Literal[
    "faded", "no significant difference", "grew", "too few windows", "not comparable"
]
"""``faded``: the end is worse than the beginning by an interval that leaves 1 out."""


class Flight(Record):
    """A craft that carries the device."""

    hover_w: float
    battery_wh: float


class Asked(Record):
    """What a soak was told besides what every run is told."""

    duration_s: float
    compare_s: float = Field(description="of the first and of the last stretch")
    flight: Flight | None = None


class Gauges(Record):
    """Means over one window or stretch; what is not there could not be measured."""

    watts: float | None = Field(default=None, description="of the rails that are the machine")
    rails: dict[str, float] = Field(default={}, description="watts")
    clocks: dict[str, float] = Field(default={}, description="hertz")
    limits: dict[str, float] = Field(default={}, description="hertz that may not be passed")
    celsius: dict[str, float] = Field(default={}, description="by thermal zone or GPU")
    gpu_busy: dict[str, float] = Field(default={}, description="share of time, 0 to 1")
    available_bytes: float | None = Field(default=None, description="memory of the whole board")
    gpu_bytes: float | None = Field(default=None, description="of it, held by the shared GPU")
    server_rss_bytes: float | None = Field(default=None, description="at the window's end")


class SoakWindow(Record):
    """One of many windows against one server that was never without load for long."""

    trial: str
    start_s: float = Field(description="since the load began, warm-up included")
    length_s: float
    inferences_per_s: float
    p99_ms: float | None = Field(description="null where too few samples bound it")
    gauges: Gauges
    throttled: tuple[str, ...] = Field(description="why clocks were held down, as far as told")
    power_modes: tuple[str, ...] = ()
    idle_w: float | None = Field(default=None, description="before the server; of the same rails")
    verdict: Verdict
    reasons: tuple[str, ...] = ()
    counts: bool = Field(description="whether it may be compared")


class Efficiency(Record):
    """Null where no rail is the machine, or nothing was measured before the server."""

    gross_per_joule: float | None
    net_per_joule: float | None
    gross_per_wh: float | None
    net_per_wh: float | None


class Stretch(Record):
    """The windows of the first or of the last minutes."""

    start_s: float
    end_s: float
    windows: int = Field(description="that are compared")
    left_out: int = Field(description="that say nothing of the server")
    inferences_per_s: float | None = Field(description="geometric mean over windows")
    p99_ms: float | None = Field(description="geometric mean over windows")
    gauges: Gauges
    idle_w: float | None = Field(default=None, description="of the machine, before the server")
    throttled: tuple[str, ...]
    efficiency: Efficiency


class Ratio(Record):
    """The last stretch over the first, from one value per window; 95% interval."""

    before: float
    after: float
    ratio: float
    low: float | None = Field(description="null for fewer than three windows")
    high: float | None


class FlightLost(Record):
    flight: Flight
    device_w: float = Field(description="mean of the last stretch, gross")
    flight_s: float = Field(description="hovering without the device")
    lost_s: float


class SoakRecord(Record):
    schema_version: int = SCHEMA_VERSION
    manifest: Manifest
    asked: Asked
    board: BoardRecord
    measured_s: float = Field(description="from the beginning of the load to its last window")
    complete: bool
    windows: tuple[SoakWindow, ...]
    cold: Stretch | None
    soaked: Stretch | None
    throughput: Ratio | None
    p99: Ratio | None
    power: Ratio | None
    verdict: SoakVerdict
    sentence: str
    tells_throttling: bool = Field(description="whether anything here would have told of it")
    power_modes: tuple[str, ...] = Field(description="seen during the load, in their order")
    flight: FlightLost | None = None
    starts: tuple[Start, ...] = Field(default=(), description="cold start, engine build")
    missing: dict[str, str] = Field(default={}, description="what could not be measured, and why")
