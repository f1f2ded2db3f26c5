"""Everything that a device tells of its own state, in one reading: what is there is found once."""

from __future__ import annotations

from dataclasses import dataclass, field

from loadtest.resources.board import read_memory, read_power_mode
from loadtest.resources.clocks import find_clocks, read_clocks
from loadtest.resources.record import (
    ClockState,
    CoolerState,
    GpuState,
    MemoryState,
    ThrottleState,
    ZoneState,
)
from loadtest.resources.roots import Reading, Roots
from loadtest.resources.tegra_gpu import find_tegra_gpus, read_tegra_gpus
from loadtest.resources.thermal import find_coolers, find_throttles, find_zones, read_all

_NO_ZONE = "no thermal zone, as in most virtual machines"
_NO_COOLER = "no cooling device: nothing tells when it slows down to cool"
_NO_COUNTER = "no counter of throttling"


@dataclass(frozen=True)
class DeviceState:
    clocks: dict[str, ClockState] = field(default_factory=dict)
    zones: dict[str, ZoneState] = field(default_factory=dict)
    coolers: dict[str, CoolerState] = field(default_factory=dict)
    throttles: dict[str, ThrottleState] = field(default_factory=dict)
    memory: MemoryState | None = None
    power_mode: str | None = None
    gpus: dict[str, GpuState] = field(default_factory=dict)


class Device:
    """The sensors below ``roots``."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._clocks = find_clocks(roots)
        self._zones, self._coolers = find_zones(roots), find_coolers(roots)
        self._throttles = find_throttles(roots)
        self._gpus = find_tegra_gpus(roots)

    def read(self) -> Reading[DeviceState]:
        clocks = read_clocks(self._clocks)
        zones = read_all("zones", self._zones, _NO_ZONE)
        coolers = read_all("coolers", self._coolers, _NO_COOLER)
        throttles = read_all("throttles", self._throttles, _NO_COUNTER)
        memory, mode = read_memory(self._roots), read_power_mode(self._roots)
        gpus = read_tegra_gpus(self._gpus)
        state = DeviceState(
            clocks=clocks.value,
            zones=zones.value,
            coolers=coolers.value,
            throttles=throttles.value,
            memory=memory.value,
            power_mode=mode.value,
            gpus=gpus.value,
        )
        why: dict[str, str] = {}
        for reading in (clocks, zones, coolers, throttles, memory, mode, gpus):
            why |= reading.unmeasurable
        return Reading(state, why)
