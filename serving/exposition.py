"""The state of a server as Prometheus's text format, row by row of the table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import (
    Metric as Family,
)
from prometheus_client.registry import Collector

from serving.metrics import table
from serving.metrics.buckets import BATCH_ROWS
from serving.metrics.table import Metric
from serving.statistics import OUTCOMES, Durations, VersionStatistics

_FAMILIES = {
    "counter": CounterMetricFamily,
    "gauge": GaugeMetricFamily,
    "histogram": HistogramMetricFamily,
}
_PHASES = ((table.QUEUE, "queue"), (table.COMPUTE, "compute"), (table.TOTAL, "total"))


@dataclass(frozen=True)
class Source:
    """One model version that is served.

    Attributes:
        pending: requests that wait for one of its ``instances``.
    """

    model: str
    version: int
    statistics: VersionStatistics
    pending: int
    instances: int

    @property
    def labels(self) -> list[str]:
        return [self.model, str(self.version)]


@dataclass(frozen=True)
class ServerState:
    """Attributes: ``restarts`` of its processes so far; ``threads`` that it has now."""

    sources: Sequence[Source]
    restarts: int
    threads: int
    processes: int = 1


def exposition(state: ServerState) -> bytes:
    """Prometheus text format."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_Snapshot(state))
    return generate_latest(registry)


def family_of(metric: Metric) -> Any:
    """An empty family of the kind that the row says; its ``add_metric`` depends on the kind."""
    return _FAMILIES[metric.kind](metric.name, metric.help, labels=metric.labels)


def cumulated(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Prometheus's buckets: each counts everything up to its bound; the last has none.

    ``counts`` has one more entry than ``bounds``.
    """
    names = [*(repr(float(bound)) for bound in bounds), "+Inf"]
    so_far = 0
    found = []
    for name, count in zip(names, counts, strict=True):
        so_far += count
        found.append((name, float(so_far)))
    return found


class _Snapshot(Collector):
    def __init__(self, state: ServerState) -> None:
        self._state = state

    def collect(self) -> Iterable[Family]:
        return _families(self._state)


def _families(state: ServerState) -> Iterator[Family]:
    yield from _counts(state.sources)
    yield from _gauges(state)
    for metric, field in _PHASES:
        family = family_of(metric)
        for source in state.sources:
            durations: Durations = getattr(source.statistics, field)
            bounds_s = [bound / 1e9 for bound in durations.bounds_ns]
            buckets = cumulated(bounds_s, durations.bucket_counts())
            family.add_metric(source.labels, buckets, durations.total_ns / 1e9)
        yield family
    yield _batch_rows(state.sources)


def _counts(sources: Sequence[Source]) -> Iterator[Family]:
    requests, within = family_of(table.REQUESTS), family_of(table.WITHIN_SLO)
    for source in sources:
        for outcome in OUTCOMES:
            requests.add_metric([*source.labels, outcome], source.statistics.outcomes[outcome])
        if source.statistics.slo_ns is not None:
            within.add_metric(source.labels, source.statistics.within_slo())
    yield from (requests, within)


def _gauges(state: ServerState) -> Iterator[Family]:
    in_flight, pending, instances = map(
        family_of, (table.IN_FLIGHT, table.PENDING, table.INSTANCES)
    )
    for source in state.sources:
        in_flight.add_metric(source.labels, source.statistics.in_flight)
        pending.add_metric(source.labels, source.pending)
        instances.add_metric(source.labels, source.instances)
    yield from (in_flight, pending, instances)
    loaded = family_of(table.LOADED)
    models = [source.model for source in state.sources]
    for model in dict.fromkeys(models):
        loaded.add_metric([model], models.count(model))
    yield loaded
    for metric, value in (
        (table.RESTARTS, state.restarts),
        (table.PROCESSES, state.processes),
        (table.THREADS, state.threads),
    ):
        family = family_of(metric)
        family.add_metric([], value)
        yield family


def _batch_rows(sources: Sequence[Source]) -> Family:
    family: HistogramMetricFamily = family_of(table.BATCH_ROWS)
    for source in sources:
        batches = sorted(source.statistics.batches.items())
        counts = [
            sum(tally.count for rows, tally in batches if low < rows <= high)
            for low, high in zip((0, *BATCH_ROWS), (*BATCH_ROWS, 1 << 62), strict=True)
        ]
        total = sum(rows * tally.count for rows, tally in batches)
        family.add_metric(source.labels, cumulated(BATCH_ROWS, counts), total)
    return family
