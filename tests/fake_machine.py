"""Machines that this one is not: process trees, power sensors and GPUs, as Linux shows them."""

# ruff: noqa: N802  (NVML's names)

from __future__ import annotations

import ctypes
import functools
import shutil
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml

from loadtest.resources.roots import Roots

PSS_KIB, RSS_PAGES = 200, 100


class FakeMachine:
    """Folders for ``/proc`` and ``/sys`` below ``root``, laid out by a test."""

    def __init__(self, root: Path) -> None:
        self.roots = Roots(root / "proc", root / "sys", root)
        self.roots.proc.mkdir()
        self.roots.sys.mkdir()
        self._parents: dict[int, int] = {}

    def write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def process(
        self,
        pid: int,
        parent: int = 1,
        *,
        ticks: int = 0,
        started: int = 7,
        state: str = "S",
        threads: Mapping[int, tuple[int, int]] | None = None,
        pss_kib: int | None = PSS_KIB,
    ) -> None:
        """A process; ``threads`` are voluntary and involuntary switches by thread.

        Its name holds what parsers trip over.
        """
        folder = self.roots.proc / str(pid)
        shutil.rmtree(folder, ignore_errors=True)
        switches = threads or {pid: (0, 0)}
        fields = ["0"] * 50
        fields[0], fields[1] = state, str(parent)
        fields[11], fields[12] = str(ticks - ticks // 3), str(ticks // 3)
        fields[17], fields[19], fields[21] = str(len(switches)), str(started), str(RSS_PAGES)
        self.write(folder / "stat", f"{pid} (a) S (b) {' '.join(fields)}\n")
        for thread, (voluntary, involuntary) in switches.items():
            self.write(folder / f"task/{thread}/children", "")
            self.write(
                folder / f"task/{thread}/status",
                f"Name:\ta\nThreads:\t1\nvoluntary_ctxt_switches:\t{voluntary}\n"
                f"nonvoluntary_ctxt_switches:\t{involuntary}\nx86_Thread_features:\t\n",
            )
        if pss_kib is not None:
            text = f"Rss: 999 kB\nPss:  {pss_kib} kB\nPss_Anon: 1 kB\n"
            self.write(folder / "smaps_rollup", f"1000-2000 ---p 0 00:00 0 [rollup]\n{text}")
        self._parents[pid] = parent
        self._write_children()

    def end(self, pid: int) -> None:
        """The process is gone; its children belong to process 1."""
        shutil.rmtree(self.roots.proc / str(pid))
        del self._parents[pid]
        self._parents = {p: 1 if above == pid else above for p, above in self._parents.items()}
        self._write_children()

    def without_children_files(self) -> None:
        """As a kernel that was built without CONFIG_PROC_CHILDREN."""
        for file in self.roots.proc.glob("*/task/*/children"):
            file.unlink()

    def _write_children(self) -> None:
        for pid in self._parents:
            children = [str(child) for child, above in self._parents.items() if above == pid]
            # The last thread started them: the first one's file alone would miss them.
            *_, last = sorted((self.roots.proc / f"{pid}/task").iterdir())
            (last / "children").write_text(" ".join(children) + " ")

    def rapl(self, zone: str, name: str, energy_uj: int, range_uj: int = 1 << 40) -> Path:
        """A zone such as ``intel-rapl:0``; returns its counter's file."""
        folder = self.roots.sys / "class/powercap" / zone
        self.write(folder / "name", f"{name}\n")
        self.write(folder / "max_energy_range_uj", f"{range_uj}\n")
        self.write(folder / "energy_uj", f"{energy_uj}\n")
        return folder / "energy_uj"

    def ina3221(self, number: int, channels: Mapping[int, tuple[str, int, int]]) -> Path:
        """A monitor under hwmon; channels have a label, millivolts and milliamperes."""
        folder = self.roots.sys / f"class/hwmon/hwmon{number}"
        self.write(folder / "name", "ina3221\n")
        for channel, (label, millivolts, milliamperes) in channels.items():
            self.write(folder / f"in{channel}_label", f"{label}\n")
            self.write(folder / f"in{channel}_input", f"{millivolts}\n")
            self.write(folder / f"curr{channel}_input", f"{milliamperes}\n")
        return folder

    def ina3221_before_hwmon(self, rails: Mapping[str, int]) -> Path:
        """The monitor as L4T 32 shows it: milliwatts by rail."""
        folder = self.roots.sys / "bus/i2c/drivers/ina3221x/6-0040/iio:device0"
        for channel, (label, milliwatts) in enumerate(rails.items()):
            self.write(folder / f"rail_name_{channel}", f"{label}\n")
            self.write(folder / f"in_power{channel}_input", f"{milliwatts}\n")
        return folder


@dataclass
class FakeGpu:
    """What one GPU has done so far, and how it stands."""

    has_monitor: bool = True
    percent: int = 40
    memory_bytes: int = 3 << 30
    sm_mhz: int = 1500
    memory_mhz: int = 2600
    celsius: int = 61
    reasons: int = 0
    milliwatts: int = 90_000
    millijoules: int = 5_000_000
    seconds: float = 0.0
    engine_busy_s: float = 0.0
    sm_busy_s: float = 0.0

    def run(self, seconds: float, *, engine: float, sm: float) -> None:
        self.seconds += seconds
        self.engine_busy_s += engine * seconds
        self.sm_busy_s += sm * seconds


def _refusable(call: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(call)
    def guarded(self: FakeNvml, *arguments: Any) -> Any:
        if code := self.refused.get(call.__name__):
            raise pynvml.NVMLError(code)
        return call(self, *arguments)

    return guarded


@dataclass
class FakeNvml:
    """The module ``pynvml`` with its real constants and structures, and these GPUs behind it.

    ``refused`` gives functions an NVML error to answer with.
    """

    gpus: list[FakeGpu]
    refused: dict[str, int] = field(default_factory=dict)
    is_open: bool = False
    samples: dict[int, tuple[float, float, float]] = field(default_factory=dict)
    _memory: list[Any] = field(default_factory=list)

    def __getattr__(self, name: str) -> Any:
        value = getattr(pynvml, name)
        if isinstance(value, types.FunctionType):
            raise AssertionError(f"{name} is not faked")
        return value

    @_refusable
    def nvmlInit(self) -> None:
        self.is_open = True

    def nvmlShutdown(self) -> None:
        self.is_open = False

    @_refusable
    def nvmlDeviceGetCount(self) -> int:
        return len(self.gpus)

    @_refusable
    def nvmlDeviceGetHandleByIndex(self, index: int) -> FakeGpu:
        return self.gpus[index]

    @_refusable
    def nvmlDeviceGetUtilizationRates(self, gpu: FakeGpu) -> Any:
        return types.SimpleNamespace(gpu=gpu.percent)

    @_refusable
    def nvmlDeviceGetMemoryInfo(self, gpu: FakeGpu) -> Any:
        return types.SimpleNamespace(used=gpu.memory_bytes)

    @_refusable
    def nvmlDeviceGetClockInfo(self, gpu: FakeGpu, kind: int) -> int:
        return {pynvml.NVML_CLOCK_SM: gpu.sm_mhz, pynvml.NVML_CLOCK_MEM: gpu.memory_mhz}[kind]

    @_refusable
    def nvmlDeviceGetTemperature(self, gpu: FakeGpu, sensor: int) -> int:
        assert sensor == pynvml.NVML_TEMPERATURE_GPU
        return gpu.celsius

    @_refusable
    def nvmlDeviceGetCurrentClocksEventReasons(self, gpu: FakeGpu) -> int:
        return gpu.reasons

    @_refusable
    def nvmlDeviceGetPowerUsage(self, gpu: FakeGpu) -> int:
        return gpu.milliwatts

    @_refusable
    def nvmlDeviceGetTotalEnergyConsumption(self, gpu: FakeGpu) -> int:
        return gpu.millijoules

    @_refusable
    def nvmlGpmQueryDeviceSupport(self, gpu: FakeGpu) -> Any:
        return types.SimpleNamespace(isSupportedDevice=int(gpu.has_monitor))

    @_refusable
    def nvmlGpmSampleAlloc(self) -> Any:
        self._memory.append(ctypes.create_string_buffer(8))
        sample = ctypes.cast(self._memory[-1], pynvml.c_nvmlGpmSample_t)
        self.samples[_address(sample)] = (0.0, 0.0, 0.0)
        return sample

    @_refusable
    def nvmlGpmSampleFree(self, sample: Any) -> None:
        del self.samples[_address(sample)]

    @_refusable
    def nvmlGpmSampleGet(self, gpu: FakeGpu, sample: Any) -> None:
        self.samples[_address(sample)] = (gpu.seconds, gpu.engine_busy_s, gpu.sm_busy_s)

    @_refusable
    def nvmlGpmMetricsGet(self, request: Any) -> Any:
        first, second = (self.samples[_address(s)] for s in (request.sample1, request.sample2))
        seconds, *busy = (later - sooner for sooner, later in zip(first, second, strict=True))
        assert seconds > 0, "the samples are in the wrong order, or one was not taken"
        columns = {pynvml.NVML_GPM_METRIC_GRAPHICS_UTIL: 0, pynvml.NVML_GPM_METRIC_SM_UTIL: 1}
        for metric in request.metrics[: request.numMetrics]:
            metric.value = 100 * busy[columns[metric.metricId]] / seconds
        return request


def _address(sample: Any) -> int:
    return ctypes.cast(sample, ctypes.c_void_p).value or 0
