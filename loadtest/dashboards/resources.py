"""*Resources*: what servers and generator use of the machine, and what it does not tell."""

from __future__ import annotations

from loadtest.dashboards.dashboard import Dashboard, Section, any_of, data_source, run
from loadtest.dashboards.panels import Panel, Target, lines, named, stat, states, table
from loadtest.dashboards.promql import RANGE, largest, rate, series, total
from loadtest.metrics import (
    CORE_BUSY,
    ENERGY,
    GPU_CLOCK,
    GPU_ENGINE,
    GPU_MEMORY,
    GPU_TEMPERATURE,
    GPU_THROTTLED,
    GPU_UTILISATION,
    NETWORK,
    PHASE,
    POWER,
    PROCESS_COUNT,
    PROCESS_CPU,
    PROCESS_PSS,
    PROCESS_RSS,
    PROCESS_SWITCHES,
    PROCESS_THREADS,
    UNMEASURABLE,
)

_UNREAD = "could not be measured: the table at the end says why"
_NO_GPU = "no GPU was seen, or it tells nothing"
_NO_RAIL = "no rail could be read: the table at the end says why"
_ROLE = "{{role}} {{backend}}"
_OF_ROLE = ("backend", "role")


def _processes() -> tuple[Panel, ...]:
    return (
        lines(
            "CPU by role",
            "CPUs in use by the processes of a role.",
            "suffix: CPUs",
            Target(rate(PROCESS_CPU, *_OF_ROLE), _ROLE),
            absent=_UNREAD,
            many=True,
        ),
        lines(
            "CPU by core",
            "Share of the time in which a CPU was not idle, whoever used it.",
            "percentunit",
            Target(rate(CORE_BUSY, "core"), "CPU {{core}}"),
            absent=_UNREAD,
            many=True,
        ),
        lines(
            "Resident memory",
            "Pages that processes share count in each of them.",
            "bytes",
            Target(total(PROCESS_RSS, *_OF_ROLE), _ROLE),
            absent=_UNREAD,
            many=True,
        ),
        lines(
            "Proportional memory",
            "Proportional set size: pages that processes share are divided among them.",
            "bytes",
            Target(total(PROCESS_PSS, *_OF_ROLE), _ROLE),
            absent=_UNREAD,
            many=True,
        ),
        lines(
            "Context switches",
            "Voluntary: it waited for something. Involuntary: its CPU was taken away.",
            "cps",
            Target(rate(PROCESS_SWITCHES, *_OF_ROLE, "kind"), f"{{{{kind}}}} {_ROLE}"),
            absent=_UNREAD,
            many=True,
        ),
        lines(
            "Network",
            "Bytes over each interface; loopback counts both ways.",
            "Bps",
            Target(rate(NETWORK, "interface", "direction"), "{{direction}} {{interface}}"),
            absent=_UNREAD,
            many=True,
        ),
        lines(
            "Processes of a role",
            "The process that was started and all that it started.",
            "suffix: processes",
            Target(total(PROCESS_COUNT, *_OF_ROLE), _ROLE),
            absent=_UNREAD,
            many=True,
        ),
        lines(
            "Threads of a role",
            "More of them than CPUs wait for each other.",
            "suffix: threads",
            Target(total(PROCESS_THREADS, *_OF_ROLE), _ROLE),
            absent=_UNREAD,
            many=True,
        ),
    )


def _gpu() -> tuple[Panel, ...]:
    return (
        lines(
            "GPU utilisation",
            "Share of the time in which any kernel ran, and in which the graphics or compute "
            "engine was active. Neither says how much of the GPU was used.",
            "percentunit",
            Target(largest(GPU_UTILISATION, "gpu"), "a kernel ran, GPU {{gpu}}"),
            Target(largest(GPU_ENGINE, "gpu"), "engine active, GPU {{gpu}}"),
            absent=_NO_GPU,
        ),
        lines(
            "GPU memory",
            "In use, by whatever process.",
            "bytes",
            Target(largest(GPU_MEMORY, "gpu"), "GPU {{gpu}}"),
            absent=_NO_GPU,
        ),
        lines(
            "GPU clocks",
            "Of the SMs and of the memory.",
            "hertz",
            Target(largest(GPU_CLOCK, "gpu", "kind"), "{{kind}} GPU {{gpu}}"),
            absent=_NO_GPU,
        ),
        lines(
            "GPU temperature",
            "Of the chip.",
            "celsius",
            Target(largest(GPU_TEMPERATURE, "gpu"), "GPU {{gpu}}"),
            absent=_NO_GPU,
        ),
        states(
            "GPU held down",
            "When and why the clock was held down.",
            "none",
            Target(largest(GPU_THROTTLED, "gpu", "reason"), "{{reason}} GPU {{gpu}}"),
            absent=_NO_GPU,
            mappings=named((0, "free", "green"), (1, "held down", "red")),
            width=24,
            height=6,
        ),
    )


def _energy() -> tuple[Panel, ...]:
    spent = f"sum by (rail) (increase({series(ENERGY)}[{RANGE}]))"
    return (
        lines(
            "Power by rail",
            "As the rail tells it: RAPL, INA3221, Jetson or GPU. A rail may be part of another, so "
            "they are not added.",
            "watt",
            Target(largest(POWER, "rail"), "{{rail}}"),
            absent=_NO_RAIL,
            width=18,
        ),
        stat(
            "Energy by rail",
            "Over the time range; rails are not added.",
            "joule",
            Target(spent, "{{rail}}"),
            absent=_NO_RAIL,
            height=8,
        ),
    )


def _unmeasurable() -> tuple[Panel, ...]:
    return (
        table(
            "What could not be measured",
            "What this machine does not let be measured, and why. Nothing is shown as zero "
            "instead.",
            f"max by (what, why) (max_over_time({series(UNMEASURABLE)}[{RANGE}])) == 1",
            {"what": "What", "why": "Why"},
            hidden=("Time", "Value"),
            absent="everything could be measured",
        ),
    )


RESOURCES = Dashboard(
    name="resources",
    title="Resources",
    description="What servers and load generator use of the machine, and what it does not tell.",
    variables=(
        data_source(),
        run(PHASE.sample),
        any_of("backend", "Backend", PHASE.sample, multi=True),
    ),
    sections=(
        Section("Processes", _processes()),
        Section("GPU", _gpu()),
        Section("Power and energy", _energy()),
        Section("Not measured", _unmeasurable()),
    ),
)
