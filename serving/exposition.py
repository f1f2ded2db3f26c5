"""What a server of ours tells Prometheus: one table of metrics, filled from its statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

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

from serving.statistics import OUTCOMES, PHASE_BUCKETS_NS, VersionStatistics

LABELS = ("model", "version")
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Metric:
    """One row; ``kind`` is Prometheus's word for the instrument."""

    name: str
    kind: str
    help: str
    unit: str
    labels: tuple[str, ...] = LABELS


REQUESTS = Metric(
    "infersweep_requests", "counter", "Requests by outcome", "requests", (*LABELS, "outcome")
)
QUEUE = Metric("infersweep_queue_seconds", "histogram", "Time a request waited", "seconds")
COMPUTE = Metric(
    "infersweep_compute_seconds",
    *("histogram", "Time a request's batch was inside the session", "seconds"),
)
TOTAL = Metric(
    "infersweep_request_seconds",
    *("histogram", "Time from a request's arrival to its answer", "seconds"),
)
BATCH_ROWS = Metric("infersweep_batch_rows", "histogram", "Rows of each batch", "rows")
IN_FLIGHT = Metric("infersweep_in_flight", "gauge", "Requests being answered", "requests")
METRICS = (REQUESTS, QUEUE, COMPUTE, TOTAL, BATCH_ROWS, IN_FLIGHT)


@dataclass(frozen=True)
class Source:
    """One model version that is served, or was."""

    model: str
    version: int
    statistics: VersionStatistics


def exposition(sources: Sequence[Source]) -> bytes:
    """Prometheus text format."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(sources))
    return generate_latest(registry)


class _Snapshot(Collector):
    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = sources

    def collect(self) -> Iterable[Family]:
        requests = CounterMetricFamily(REQUESTS.name, REQUESTS.help, labels=REQUESTS.labels)
        in_flight = GaugeMetricFamily(IN_FLIGHT.name, IN_FLIGHT.help, labels=IN_FLIGHT.labels)
        rows = _histogram_family(BATCH_ROWS)
        for source, labels in self._labelled():
            for outcome in OUTCOMES:
                count = source.statistics.outcomes[outcome]
                requests.add_metric([*labels, outcome], count)
            in_flight.add_metric(labels, source.statistics.in_flight)
            batches = sorted(source.statistics.batches.items())
            counts = [
                sum(b.count for size, b in batches if low < size <= high)
                for low, high in zip((0, *BATCH_BUCKETS), (*BATCH_BUCKETS, 1 << 62), strict=True)
            ]
            total = sum(size * batch.count for size, batch in batches)
            rows.add_metric(labels, _cumulated(BATCH_BUCKETS, counts), total)
        yield from (requests, in_flight, rows)
        for metric, field in ((QUEUE, "queue"), (COMPUTE, "compute"), (TOTAL, "total")):
            family = _histogram_family(metric)
            for source, labels in self._labelled():
                duration = getattr(source.statistics, field)
                bounds = [bound / 1e9 for bound in PHASE_BUCKETS_NS]
                buckets = _cumulated(bounds, duration.bucket_counts())
                family.add_metric(labels, buckets, duration.total_ns / 1e9)
            yield family

    def _labelled(self) -> Iterator[tuple[Source, list[str]]]:
        for source in self._sources:
            yield source, [source.model, str(source.version)]


def _histogram_family(metric: Metric) -> HistogramMetricFamily:
    return HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)


def _cumulated(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Prometheus's buckets: each counts everything up to its bound; the last has none."""
    names = [*(repr(float(bound)) for bound in bounds), "+Inf"]
    so_far = 0
    cumulated = []
    for name, count in zip(names, counts, strict=True):
        so_far += count
        cumulated.append((name, float(so_far)))
    return cumulated
