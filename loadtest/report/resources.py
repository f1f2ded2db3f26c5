"""The page's section on what a run used: rows of text, and what could not be measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from loadtest.report.numbers import MISSING, share, size
from loadtest.resources.record import Energy, Gauge, GpuUse, ResourceUse, RoleUse
from loadtest.resources.sampler import GENERATOR, SERVER
from loadtest.results import Summary


@dataclass(frozen=True)
class UseRow:
    """One point's use, as text; ``gpus`` has a row of cells per GPU."""

    backend: str
    level: float
    server_cpus: str
    generator_cpus: str
    resident: str
    proportional: str
    threads: str
    switches: str
    network: str
    joules: str
    net_joules: str
    gpus: tuple[tuple[str, ...], ...]


GPU_COLUMNS = ("GPU", "Kernels", "Engine", "Memory", "SM clock", "Temperature", "Held down by")


@dataclass(frozen=True)
class ResourceSection:
    """Attributes: ``unmeasurable`` maps what to why, each once; ``rails`` were added up."""

    rows: tuple[UseRow, ...]
    unmeasurable: dict[str, str]
    rails: tuple[str, ...]

    @property
    def groups(self) -> list[tuple[str, list[UseRow]]]:
        """Rows by backend, in the order of the summary."""
        by_backend = groupby(self.rows, lambda row: row.backend)
        return [(label, list(rows)) for label, rows in by_backend]

    @property
    def has_gpus(self) -> bool:
        return any(row.gpus for row in self.rows)


def section_of(summary: Summary) -> ResourceSection | None:
    """``None`` where nothing was sampled, as in results of older versions."""
    uses = [
        (backend.label, point.level, point.resources)
        for backend in summary.backends
        for point in backend.points
        if point.resources is not None
    ]
    if not uses:
        return None
    unmeasurable: dict[str, str] = {}
    rails: dict[str, None] = {}
    for _, _, use in uses:
        unmeasurable |= use.unmeasurable
        if use.energy:
            unmeasurable |= use.energy.missing
            rails.update(dict.fromkeys(use.energy.rails))
    rows = tuple(_row(label, level, use) for label, level, use in uses)
    return ResourceSection(rows, dict(sorted(unmeasurable.items())), tuple(rails))


def _row(label: str, level: float, use: ResourceUse) -> UseRow:
    server, generator = use.roles.get(SERVER), use.roles.get(GENERATOR)
    moved = sum(i.receive_bytes_per_s for i in use.network.values()) if use.network else None
    return UseRow(
        backend=label,
        level=level,
        server_cpus=_cores(server),
        generator_cpus=_cores(generator),
        resident=size(server.rss_peak_bytes if server else None),
        proportional=size(server.pss_peak_bytes if server else None),
        threads=MISSING
        if server is None or server.threads_peak is None
        else str(server.threads_peak),
        switches=_switches(server),
        network=MISSING if moved is None else f"{size(moved)}/s",
        joules=_joules(use.energy, "joules_per_inference"),
        net_joules=_joules(use.energy, "net_joules_per_inference"),
        gpus=tuple(tuple(_gpu(name, gpu)) for name, gpu in use.gpus.items()),
    )


def _cores(role: RoleUse | None) -> str:
    return MISSING if role is None or role.cpu_cores is None else f"{role.cpu_cores:.2f}"


def _switches(role: RoleUse | None) -> str:
    if role is None or role.voluntary_switches_per_s is None:
        return MISSING
    forced = role.involuntary_switches_per_s
    return (
        f"{role.voluntary_switches_per_s:,.0f} / {MISSING if forced is None else f'{forced:,.0f}'}"
    )


def _joules(energy: Energy | None, field: str) -> str:
    value: float | None = getattr(energy, field) if energy else None
    return MISSING if value is None else f"{value:.3g} J"


def _gpu(name: str, gpu: GpuUse) -> Iterator[str]:
    yield name
    yield share(gpu.utilisation.mean if gpu.utilisation else None)
    yield share(gpu.engine_active.mean if gpu.engine_active else None)
    yield size(gpu.memory_bytes.highest if gpu.memory_bytes else None)
    yield _between(gpu.sm_clock_hz, 1e6, "MHz")
    yield _between(gpu.temperature_celsius, 1.0, "°C")
    yield MISSING if gpu.throttled is None else ", ".join(gpu.throttled) or "nothing"


def _between(gauge: Gauge | None, scale: float, unit: str) -> str:
    if gauge is None:
        return MISSING
    return f"{gauge.lowest / scale:,.0f} to {gauge.highest / scale:,.0f} {unit}"
