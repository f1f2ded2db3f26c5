"""The schema of what was measured beside a run: one moment, and one window.

In both, ``unmeasurable`` maps what could not be measured to why. It is named by its path in a
sample (``roles.server.pss_bytes``), or by the beginning of that path for all below (``gpus``).
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class RoleState(_Record):
    """The processes of one role. Counters begin at 0 when the server began to be watched.

    What costs much to read is not read for every sample; its age says how old it is.
    """

    processes: int
    threads: int
    cpu_s: float
    rss_bytes: int = Field(description="pages that processes share count in each of them")
    pss_bytes: int | None = Field(default=None, description="shared pages are divided")
    pss_age_s: float = Field(default=0.0, description="0 when it was read for this sample")
    voluntary_switches: int | None = None
    involuntary_switches: int | None = None
    switches_age_s: float = 0.0


class CoreState(_Record):
    busy_s: float
    stolen_s: float = Field(description="the hypervisor ran something else")


class InterfaceState(_Record):
    receive_bytes: int
    transmit_bytes: int


class GpuState(_Record):
    utilisation: float | None = Field(default=None, description="time in which a kernel ran, 0-1")
    engine_active: float | None = Field(default=None, description="graphics or compute engine, 0-1")
    sm_active: float | None = Field(default=None, description="busy SMs of all, 0-1")
    memory_bytes: int | None = None
    sm_clock_hz: float | None = None
    memory_clock_hz: float | None = None
    temperature_celsius: float | None = None
    throttled: tuple[str, ...] | None = Field(
        default=None, description="why the clock is held down; empty when it is not"
    )


class RailState(_Record):
    watts: float | None = Field(description="null until a counter was read twice")
    joules: float = Field(description="since the sampling began")


class ClockState(_Record):
    hz: float
    limit_hz: float = Field(description="may not be passed now")
    rated_hz: float | None = Field(description="highest that the hardware has")


class ZoneState(_Record):
    celsius: float


class CoolerState(_Record):
    state: int = Field(description="0 does not cool")
    highest: int


class ThrottleState(_Record):
    events: int = Field(description="since the boot")


class MemoryState(_Record):
    """Of the whole machine; on a Jetson CPU and GPU share it."""

    total_bytes: int
    available_bytes: int
    gpu_bytes: int | None = Field(default=None, description="held by clients of the shared GPU")


class BoardRecord(_Record):
    """What the device says it is; null where it does not."""

    model: str | None = None
    l4t: str | None = Field(default=None, description="release of Jetson Linux")


class Sample(_Record):
    """One moment; a line of ``resources.jsonl``."""

    unix_s: float
    monotonic_s: float
    backend: str | None = Field(default=None, description="null while no server is watched")
    since_unix_s: float | None = Field(
        default=None, description="when this server began to be watched; counters of roles start"
    )
    roles: dict[str, RoleState] = {}
    cores: dict[str, CoreState] = {}
    network: dict[str, InterfaceState] = {}
    gpus: dict[str, GpuState] = {}
    rails: dict[str, RailState] = {}
    clocks: dict[str, ClockState] = {}
    zones: dict[str, ZoneState] = Field(default={}, description="thermal zones")
    coolers: dict[str, CoolerState] = Field(default={}, description="cooling devices")
    throttles: dict[str, ThrottleState] = Field(default={}, description="counters of throttling")
    memory: MemoryState | None = None
    power_mode: str | None = Field(default=None, description="of a Jetson")
    sampling_cpu_s: float = Field(default=0.0, description="what the sampling itself has used")
    unmeasurable: dict[str, str] = {}


class RoleUse(_Record):
    cpu_cores: float | None = Field(description="mean CPUs in use")
    rss_peak_bytes: int | None
    pss_peak_bytes: int | None
    voluntary_switches_per_s: float | None
    involuntary_switches_per_s: float | None
    processes_peak: int | None
    threads_peak: int | None


class CoreUse(_Record):
    busy: float = Field(description="share of the window, 0-1")
    stolen: float = Field(description="share that the hypervisor gave to others, 0-1")


class InterfaceUse(_Record):
    receive_bytes_per_s: float
    transmit_bytes_per_s: float


class Gauge(_Record):
    """A value over the window: mean by time, and its bounds."""

    mean: float
    lowest: float
    highest: float


class GpuUse(_Record):
    utilisation: Gauge | None
    engine_active: Gauge | None
    sm_active: Gauge | None
    memory_bytes: Gauge | None
    sm_clock_hz: Gauge | None
    memory_clock_hz: Gauge | None
    temperature_celsius: Gauge | None
    throttled: tuple[str, ...] | None = Field(description="every reason seen in the window")


class ClockUse(_Record):
    hz: Gauge
    limit_hz: Gauge
    rated_hz: float | None


class CoolerUse(_Record):
    state: Gauge
    highest: int


class MemoryUse(_Record):
    total_bytes: int
    available_bytes: Gauge
    gpu_bytes: Gauge | None


class RailUse(_Record):
    watts: float
    joules: float


class Energy(_Record):
    """The machine's energy, as far as its rails tell. No part is added to its whole."""

    rails: tuple[str, ...] = Field(description="what was added")
    missing: dict[str, str] = Field(description="what should have been added, with why it was not")
    joules: float
    joules_per_inference: float | None
    idle_watts: float | None = Field(description="of the same rails, before the first server")
    net_joules_per_inference: float | None = Field(description="above idle")


class ResourceUse(_Record):
    """What one measured window used."""

    window_s: float
    samples: int = Field(description="samples inside the window; values at its edges lie between")
    roles: dict[str, RoleUse] = {}
    cores: dict[str, CoreUse] = {}
    network: dict[str, InterfaceUse] = {}
    gpus: dict[str, GpuUse] = {}
    rails: dict[str, RailUse] = {}
    energy: Energy | None = None
    clocks: dict[str, ClockUse] = {}
    zones: dict[str, Gauge] = Field(default={}, description="degrees Celsius by thermal zone")
    coolers: dict[str, CoolerUse] = {}
    throttles: dict[str, float] = Field(default={}, description="events in the window")
    memory: MemoryUse | None = None
    power_modes: tuple[str, ...] = Field(default=(), description="of a Jetson, in their order")
    sampling_cores: float | None = Field(default=None, description="mean CPUs that sampling used")
    unmeasurable: dict[str, str] = {}
