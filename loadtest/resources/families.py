"""A sample as rows of the metric table."""

from __future__ import annotations

from collections.abc import Iterator

from loadtest import metrics
from loadtest.resources.record import GpuState, RoleState, Sample
from serving.metrics import Metric

Row = tuple[Metric, tuple[str, ...], float]
"""A metric, the values of its labels in their order, and its value."""


def families(sample: Sample, run: str) -> list[Row]:
    """Every figure that the sample has; what is null has no row."""
    rows = [*_of_roles(sample, run), *_of_machine(sample, run)]
    for name, gpu in sample.gpus.items():
        rows += _of_gpu(gpu, (run, name.removeprefix("gpu")))
    for what, why in sample.unmeasurable.items():
        rows.append((metrics.UNMEASURABLE, (run, what, why), 1.0))
    return rows


def _known(metric: Metric, labels: tuple[str, ...], value: float | None) -> Iterator[Row]:
    if value is not None:
        yield metric, labels, float(value)


def _of_roles(sample: Sample, run: str) -> Iterator[Row]:
    for role, state in sample.roles.items():
        yield from _of_role(state, (run, sample.backend or "", role))


def _of_role(state: RoleState, labels: tuple[str, ...]) -> Iterator[Row]:
    yield from _known(metrics.PROCESS_CPU, labels, state.cpu_s)
    yield from _known(metrics.PROCESS_RSS, labels, state.rss_bytes)
    yield from _known(metrics.PROCESS_PSS, labels, state.pss_bytes)
    yield from _known(metrics.PROCESS_COUNT, labels, state.processes)
    yield from _known(metrics.PROCESS_THREADS, labels, state.threads)
    switches = metrics.PROCESS_SWITCHES
    yield from _known(switches, (*labels, "voluntary"), state.voluntary_switches)
    yield from _known(switches, (*labels, "involuntary"), state.involuntary_switches)


def _of_machine(sample: Sample, run: str) -> Iterator[Row]:
    for core, cpu in sample.cores.items():
        yield from _known(metrics.CORE_BUSY, (run, core), cpu.busy_s)
    for name, interface in sample.network.items():
        yield from _known(metrics.NETWORK, (run, name, "receive"), interface.receive_bytes)
        yield from _known(metrics.NETWORK, (run, name, "transmit"), interface.transmit_bytes)
    for name, rail in sample.rails.items():
        yield from _known(metrics.POWER, (run, name), rail.watts)
        yield from _known(metrics.ENERGY, (run, name), rail.joules)


def _of_gpu(gpu: GpuState, labels: tuple[str, ...]) -> Iterator[Row]:
    yield from _known(metrics.GPU_UTILISATION, labels, gpu.utilisation)
    yield from _known(metrics.GPU_ENGINE, labels, gpu.engine_active)
    yield from _known(metrics.GPU_MEMORY, labels, gpu.memory_bytes)
    yield from _known(metrics.GPU_CLOCK, (*labels, "sm"), gpu.sm_clock_hz)
    yield from _known(metrics.GPU_CLOCK, (*labels, "memory"), gpu.memory_clock_hz)
    yield from _known(metrics.GPU_TEMPERATURE, labels, gpu.temperature_celsius)
    for reason in gpu.throttled or ():
        yield from _known(metrics.GPU_THROTTLED, (*labels, reason), 1.0)
