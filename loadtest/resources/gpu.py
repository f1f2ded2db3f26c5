"""What NVIDIA GPUs tell of themselves through NVML.

NVML API reference: https://docs.nvidia.com/deploy/nvml-api. A GPU answers some calls and refuses
others; each figure is read by itself, and what is refused is told in NVML's words.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from loadtest.resources.rails import NVML, CounterRail, MeterRail, Rail
from loadtest.resources.record import GpuState
from loadtest.resources.roots import Reading, UnreadableError

_HZ_PER_MHZ = 1e6
_MONITOR_REFRESH_S = 0.1
"""NVML: two samples of the performance monitor lie further apart than this."""

_REASONS = {
    "nvmlClocksEventReasonApplicationsClocksSetting": "application clocks",
    "nvmlClocksEventReasonSwPowerCap": "power cap",
    "nvmlClocksEventReasonHwSlowdown": "hardware slowdown",
    "nvmlClocksEventReasonSyncBoost": "sync boost",
    "nvmlClocksEventReasonSwThermalSlowdown": "thermal, by software",
    "nvmlClocksEventReasonHwThermalSlowdown": "thermal, by hardware",
    "nvmlClocksEventReasonHwPowerBrakeSlowdown": "power brake",
    "nvmlClocksEventReasonDisplayClockSetting": "display clocks",
}
"""NVML's constants. Its ``GpuIdle`` is left out: low clocks hold nothing down when nothing runs."""


def load_nvml() -> Any:
    """NVIDIA's binding; loading the driver's library is left to ``nvmlInit``."""
    import pynvml  # noqa: PLC0415  (only where something is sampled)

    return pynvml


class Gpus:
    """All GPUs that the driver shows. ``nvml`` is NVIDIA's module, or a test's with its clock."""

    def __init__(self, nvml: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._nvml = nvml
        self._devices: list[_Device] = []
        self._why_none = ""
        self._open = False
        try:
            nvml.nvmlInit()
            self._open = True
            self._devices = [
                _Device(nvml, nvml.nvmlDeviceGetHandleByIndex(index), f"gpu{index}", clock)
                for index in range(nvml.nvmlDeviceGetCount())
            ]
        except nvml.NVMLError as error:
            self._why_none = f"NVML: {error}"
        else:
            self._why_none = "" if self._devices else "the driver shows no device"

    def read(self) -> Reading[dict[str, GpuState]]:
        """By name: ``gpu0``, in the driver's order."""
        if self._why_none:
            return Reading({}, {"gpus": self._why_none})
        readings = {device.name: device.read() for device in self._devices}
        why: dict[str, str] = {}
        for reading in readings.values():
            why.update(reading.unmeasurable)
        return Reading({name: reading.value for name, reading in readings.items()}, why)

    def rails(self) -> list[Rail]:
        return [device.rail() for device in self._devices]

    def close(self) -> None:
        for device in self._devices:
            device.close()
        if self._open:
            self._open = False
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlShutdown()


class _Device:
    def __init__(self, nvml: Any, handle: Any, name: str, clock: Callable[[], float]) -> None:
        self.name = name
        self._nvml, self._handle = nvml, handle
        self._performance = _PerformanceMonitor(nvml, handle, clock)
        self._readers: dict[str, Callable[[], Any]] = {
            "utilisation": lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100,
            "memory_bytes": lambda: nvml.nvmlDeviceGetMemoryInfo(handle).used,
            "sm_clock_hz": lambda: self._clock_hz(nvml.NVML_CLOCK_SM),
            "memory_clock_hz": lambda: self._clock_hz(nvml.NVML_CLOCK_MEM),
            "temperature_celsius": lambda: nvml.nvmlDeviceGetTemperature(
                handle, nvml.NVML_TEMPERATURE_GPU
            ),
            "throttled": self._throttled,
        }

    def read(self) -> Reading[GpuState]:
        found: dict[str, Any] = {}
        why = {}
        for field, read in self._readers.items():
            try:
                found[field] = read()
            except self._nvml.NVMLError as error:
                why[f"gpus.{self.name}.{field}"] = str(error)
        try:
            found["engine_active"], found["sm_active"] = self._performance.read()
        except UnreadableError as error:
            why |= {
                f"gpus.{self.name}.{field}": str(error) for field in ("engine_active", "sm_active")
            }
        return Reading(GpuState(**found), why)

    def rail(self) -> Rail:
        """Counted by the GPU where it counts (Volta and later), else summed up from its power."""
        nvml, name = self._nvml, f"{NVML}:{self.name}"
        counted = self._in_units(nvml.nvmlDeviceGetTotalEnergyConsumption, 1e-3)
        try:
            counted()
        except UnreadableError:
            return MeterRail(name, self._in_units(nvml.nvmlDeviceGetPowerUsage, 1e-3))
        return CounterRail(name, counted)

    def close(self) -> None:
        self._performance.close()

    def _in_units(self, call: Callable[[Any], int], unit: float) -> Callable[[], float]:
        def read() -> float:
            try:
                return call(self._handle) * unit
            except self._nvml.NVMLError as error:
                raise UnreadableError(str(error)) from None

        return read

    def _clock_hz(self, kind: int) -> float:
        return float(self._nvml.nvmlDeviceGetClockInfo(self._handle, kind) * _HZ_PER_MHZ)

    def _throttled(self) -> tuple[str, ...]:
        bits = self._nvml.nvmlDeviceGetCurrentClocksEventReasons(self._handle)
        return tuple(text for name, text in _REASONS.items() if bits & getattr(self._nvml, name))


class _PerformanceMonitor:
    """Shares of time between two samples of the GPU's own monitor (GPM): Hopper and later."""

    def __init__(self, nvml: Any, handle: Any, clock: Callable[[], float]) -> None:
        self._nvml, self._handle, self._clock = nvml, handle, clock
        self._samples: list[Any] = []
        self._taken_s = clock()
        self._shares: tuple[float | None, float | None] = (None, None)
        self._why = ""
        try:
            if not nvml.nvmlGpmQueryDeviceSupport(handle).isSupportedDevice:
                self._why = "this GPU has no performance monitor (GPM)"
                return
            for _ in range(2):
                self._samples.append(nvml.nvmlGpmSampleAlloc())
            nvml.nvmlGpmSampleGet(handle, self._samples[0])
        except nvml.NVMLError as error:
            self._why = f"GPM: {error}"

    def read(self) -> tuple[float | None, float | None]:
        """Of the graphics or compute engine, and of all SMs, since the last sample; 0-1.

        Raises:
            UnreadableError: the GPU has no such monitor, or refused.
        """
        if self._why:
            raise UnreadableError(self._why)
        now_s = self._clock()
        if now_s - self._taken_s > _MONITOR_REFRESH_S:
            before, now = self._samples
            try:
                self._nvml.nvmlGpmSampleGet(self._handle, now)
                self._shares = self._between(before, now)
            except self._nvml.NVMLError as error:
                raise UnreadableError(f"GPM: {error}") from None
            self._samples.reverse()
            self._taken_s = now_s
        return self._shares

    def _between(self, before: Any, now: Any) -> tuple[float, float]:
        nvml = self._nvml
        request = nvml.c_nvmlGpmMetricsGet_t()
        request.version = nvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = 2
        request.sample1, request.sample2 = before, now
        engine, sm = request.metrics[0], request.metrics[1]
        engine.metricId = nvml.NVML_GPM_METRIC_GRAPHICS_UTIL
        sm.metricId = nvml.NVML_GPM_METRIC_SM_UTIL
        nvml.nvmlGpmMetricsGet(request)
        for metric in (engine, sm):
            if metric.nvmlReturn != nvml.NVML_SUCCESS:
                raise nvml.NVMLError(metric.nvmlReturn)
        return engine.value / 100, sm.value / 100

    def close(self) -> None:
        while self._samples:
            with suppress(self._nvml.NVMLError):
                self._nvml.nvmlGpmSampleFree(self._samples.pop())
