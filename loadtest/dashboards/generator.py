"""*Load generator health*: whether the generator could do what it was asked for."""

from __future__ import annotations

from loadtest.dashboards.dashboard import Dashboard, Section, any_of, data_source, run
from loadtest.dashboards.panels import (
    BEYOND_BUCKETS,
    NO_CEILING,
    Panel,
    Target,
    lines,
    named,
    stat,
    states,
)
from loadtest.dashboards.promql import RANGE, SENT, largest, quantile, rate, series
from loadtest.live import IDLE, MEASURING, WARMING_UP
from loadtest.metrics import CEILING, LATENESS, PHASE, PROCESS_CPU, REQUESTS, TRIALS
from loadtest.validity import (
    CEILING_LIMIT,
    CLIENT_CPU_LIMIT,
    LATE_NS,
    LATE_OF_MEDIAN,
    LATE_SHARE_LIMIT,
)

_SENT = (SENT,)


def _health() -> tuple[Panel, ...]:
    share = f"{rate(REQUESTS, 'backend', where=_SENT)} / on (backend) {largest(CEILING, 'backend')}"
    return (
        lines(
            "Lateness",
            "How late requests left. A window of an open loop is INVALID where more than "
            f"{LATE_SHARE_LIMIT:.0%} left later than {LATE_NS / 1e6:g} ms and than "
            f"{LATE_OF_MEDIAN:.0%} of the median service time.",
            "s",
            Target(quantile("0.5", LATENESS, "backend"), "p50 {{backend}}"),
            Target(quantile("0.99", LATENESS, "backend"), "p99 {{backend}}"),
            log=True,
            limit=LATE_NS / 1e9,
            mappings=BEYOND_BUCKETS,
        ),
        lines(
            "Sent, by the ceiling",
            "Requests that were sent, as a share of what this generator reaches on the null "
            f"server. Above {CEILING_LIMIT:.0%} a window is INVALID.",
            "percentunit",
            Target(share, "{{backend}}"),
            limit=CEILING_LIMIT,
            absent=NO_CEILING,
        ),
        lines(
            "Achieved against the ceiling",
            "Requests that were sent, and what this generator reaches on the null server.",
            "reqps",
            Target(rate(REQUESTS, "backend", where=_SENT), "sent {{backend}}"),
            Target(largest(CEILING, "backend"), "ceiling {{backend}}"),
        ),
        lines(
            "CPU of the generator",
            "CPUs in use by the generator's processes. Above "
            f"{CLIENT_CPU_LIMIT:.0%} of those it was given a window is INVALID.",
            "suffix: CPUs",
            Target(rate(PROCESS_CPU, "backend", where=('role="generator"',)), "{{backend}}"),
            absent="the generator's CPU could not be measured",
        ),
    )


def _progress() -> tuple[Panel, ...]:
    trials = f"sum by (backend, verdict) (max_over_time({series(TRIALS)}[{RANGE}]))"
    return (
        states(
            "Phase",
            "What the generator does: only the measured windows count.",
            "none",
            Target(largest(PHASE, "backend"), "{{backend}}"),
            mappings=named(
                (IDLE, "idle", "text"),
                (WARMING_UP, "warming up", "yellow"),
                (MEASURING, "measuring", "green"),
            ),
            width=18,
        ),
        stat(
            "Trials by verdict",
            "Windows that have ended.",
            "suffix: trials",
            Target(trials, "{{verdict}} {{backend}}"),
            absent="no trial has ended",
            decimals=0,
            height=8,
        ),
    )


def _scrapes() -> tuple[Panel, ...]:
    which = '{job=~"server|generator", run=~`${run:regex}`}'
    return (
        lines(
            "Scrape time",
            "How long Prometheus waited for the metrics. A server answers them on the CPUs that "
            "it serves with.",
            "s",
            Target(
                f"max by (job, backend, instance) (scrape_duration_seconds{which})",
                "{{job}} {{instance}} {{backend}}",
            ),
        ),
        states(
            "Targets",
            "Whether a target answered its last scrape.",
            "none",
            Target(
                f"max by (job, backend, instance) (up{which})", "{{job}} {{instance}} {{backend}}"
            ),
            mappings=named((0, "down", "red"), (1, "up", "green")),
        ),
    )


GENERATOR = Dashboard(
    name="generator",
    title="Load generator health",
    description="Whether the load generator could do what it was asked for.",
    variables=(
        data_source(),
        run(PHASE.sample),
        any_of("backend", "Backend", PHASE.sample, multi=True),
        any_of("model", "Model", PHASE.sample),
    ),
    sections=(
        Section("Could it keep up?", _health()),
        Section("Where it is", _progress()),
        Section("Scrapes", _scrapes()),
    ),
)
