"""What this machine really has: usable CPUs and where that number came from, memory, GPUs.

A container's limit is not visible in ``os.cpu_count``; thread pools sized by it are too large.
Usable CPUs = min(affinity, cgroup quota rounded up), at least 1.
"""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

from serving.errors import UsageError

CGROUP_ROOT = Path("/sys/fs/cgroup")
PROC_CGROUP = Path("/proc/self/cgroup")


@dataclass(frozen=True)
class CpuBudget:
    """How many CPUs this process may really use.

    Attributes:
        ids: the CPUs that affinity allows.
        quota_cpus: the cgroup's quota in CPUs, ``None`` when there is none.
        source: where the number came from, as shown to the user.
    """

    ids: tuple[int, ...]
    quota_cpus: float | None
    source: str

    @property
    def usable(self) -> int:
        if self.quota_cpus is None:
            return len(self.ids)
        return max(1, min(len(self.ids), math.ceil(self.quota_cpus)))


@dataclass(frozen=True)
class Gpu:
    name: str
    memory_bytes: int
    driver: str


@dataclass(frozen=True)
class GpuSurvey:
    """GPUs found through NVML; ``why_none`` says why the tuple is empty."""

    gpus: tuple[Gpu, ...]
    why_none: str = ""


def cpu_budget(
    *,
    affinity: Sequence[int] | None = None,
    cgroup_root: Path = CGROUP_ROOT,
    proc_cgroup: Path = PROC_CGROUP,
) -> CpuBudget:
    """The CPUs this process may use, from affinity and cgroup v2 or v1.

    The arguments let a test lay out another machine's files.
    """
    ids = tuple(sorted(os.sched_getaffinity(0) if affinity is None else affinity))
    quota, source = _cgroup_quota(cgroup_root, proc_cgroup)
    if quota is None or math.ceil(quota) >= len(ids):
        return CpuBudget(ids, quota, "affinity")
    return CpuBudget(ids, quota, source)


def _cgroup_quota(root: Path, proc_cgroup: Path) -> tuple[float | None, str]:
    """The tightest quota on the way from this process's cgroup up to the root."""
    paths = _cgroup_paths(proc_cgroup)
    limits: list[tuple[float, str]] = []
    for folder in _ancestors(root, paths.get("", "/")):
        fields = _read(folder / "cpu.max").split()
        if len(fields) == 2 and fields[0] != "max":
            limits.append((int(fields[0]) / int(fields[1]), f"cgroup v2 quota in {folder}"))
    for mount in ("cpu", "cpu,cpuacct"):
        for folder in _ancestors(root / mount, paths.get("cpu", "/")):
            quota = _read(folder / "cpu.cfs_quota_us")
            period = _read(folder / "cpu.cfs_period_us")
            if quota and period and int(quota) > 0:
                limits.append((int(quota) / int(period), f"cgroup v1 quota in {folder}"))
    return min(limits) if limits else (None, "")


def _cgroup_paths(proc_cgroup: Path) -> dict[str, str]:
    """Controller to path, from ``/proc/self/cgroup``; v2 has the empty controller."""
    paths: dict[str, str] = {}
    for line in _read(proc_cgroup).splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            paths[controller] = path
    return paths


def _ancestors(root: Path, path: str) -> list[Path]:
    folder = root / path.lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def cpu_model() -> str:
    """The processor's name, or the architecture where the kernel does not tell."""
    for line in _read(Path("/proc/cpuinfo")).splitlines():
        if line.startswith(("model name", "Model")):
            return line.partition(":")[2].strip()
    return platform.machine()


def memory_bytes(cgroup_root: Path = CGROUP_ROOT) -> int:
    """Memory this process may use: the smaller of the machine's and the cgroup's."""
    total: int = psutil.virtual_memory().total
    for name in ("memory.max", "memory/memory.limit_in_bytes"):
        text = _read(cgroup_root / name)
        if text.isdecimal():
            total = min(total, int(text))
    return total


def gpus() -> GpuSurvey:
    """NVIDIA GPUs that NVML can see."""
    import pynvml  # noqa: PLC0415  (loads a driver library: only when asked)

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return GpuSurvey((), f"NVML: {error}")
    try:
        driver = _as_text(pynvml.nvmlSystemGetDriverVersion())
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        found = tuple(
            Gpu(
                _as_text(pynvml.nvmlDeviceGetName(handle)),
                int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
                driver,
            )
            for handle in handles
        )
    finally:
        pynvml.nvmlShutdown()
    return GpuSurvey(found, "" if found else "the driver reports no device")


def _as_text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


@dataclass(frozen=True)
class CpuSplit:
    """Which CPUs serve and which send, as far apart as the machine allows."""

    server: tuple[int, ...]
    client: tuple[int, ...]

    @property
    def shared(self) -> bool:
        return bool(set(self.server) & set(self.client))


def split_cpus(
    budget: CpuBudget, server: Sequence[int] | None = None, client: Sequence[int] | None = None
) -> CpuSplit:
    """Give the generator the last usable CPU and the server the rest, unless told otherwise.

    Raises:
        UsageError: a CPU was named that this process may not use.
    """
    usable = budget.ids[: budget.usable]
    for named in (*(server or ()), *(client or ())):
        if named not in budget.ids:
            raise UsageError(
                f"CPU {named} is not usable here",
                hint=f"Usable: {format_cpus(budget.ids)} (from {budget.source}).",
            )
    if server is None:
        taken = set(client) if client else {usable[-1]}
        server = tuple(cpu for cpu in usable if cpu not in taken) or usable
    if client is None:
        client = tuple(cpu for cpu in usable if cpu not in set(server))[-1:] or usable[-1:]
    return CpuSplit(tuple(server), tuple(client))


def parse_cpus(text: str) -> tuple[int, ...]:
    """Read a list such as ``0,2-3``.

    Raises:
        UsageError: the text is no such list.
    """
    cpus: list[int] = []
    try:
        for part in text.split(","):
            first, dash, last = part.partition("-")
            cpus.extend(range(int(first), int(last if dash else first) + 1))
    except ValueError:
        raise UsageError(f"{text!r} is not a CPU list", hint="Write for example 0,2-3.") from None
    if not cpus or len(set(cpus)) != len(cpus):
        raise UsageError(f"{text!r} is not a CPU list", hint="Write for example 0,2-3.")
    return tuple(cpus)


def format_cpus(cpus: Sequence[int]) -> str:
    """The list as ``0,1,3``."""
    return ",".join(str(cpu) for cpu in cpus)
