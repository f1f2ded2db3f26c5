"""What a server of ours tells Prometheus: one table, from which the instruments are made."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

LABELS = ("model", "version")
PHASE_BUCKETS_S = (
    *(0.0001, 0.0003, 0.001, 0.003, 0.01, 0.02, 0.05),
    *(0.1, 0.3, 1.0, 3.0, 10.0),
)
BATCH_BUCKETS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True)
class Metric:
    """One row; ``kind`` is Prometheus's word for the instrument."""

    name: str
    kind: str
    help: str
    unit: str
    labels: tuple[str, ...] = LABELS
    buckets: tuple[float, ...] = ()


REQUESTS = Metric(
    "infersweep_requests", "counter", "Requests by outcome", "requests", (*LABELS, "outcome")
)
QUEUE = Metric(
    "infersweep_queue_seconds",
    *("histogram", "Time a request waited", "seconds"),
    buckets=PHASE_BUCKETS_S,
)
COMPUTE = Metric(
    "infersweep_compute_seconds",
    *("histogram", "Time a request's batch was inside the session", "seconds"),
    buckets=PHASE_BUCKETS_S,
)
BATCH_ROWS = Metric(
    "infersweep_batch_rows", "histogram", "Rows of each batch", "rows", buckets=BATCH_BUCKETS
)
IN_FLIGHT = Metric("infersweep_in_flight", "gauge", "Requests being answered", "requests")
OUTCOMES = ("ok", "client_fault", "refused", "server_fault")
METRICS = (REQUESTS, QUEUE, COMPUTE, BATCH_ROWS, IN_FLIGHT)


class ServerMetrics:
    """The instruments of one server, for one model version."""

    def __init__(self, model: str, version: int) -> None:
        self._registry = CollectorRegistry()
        labels = (model, str(version))
        requests = Counter(*_described(REQUESTS), registry=self._registry)
        self._outcomes = {outcome: requests.labels(*labels, outcome) for outcome in OUTCOMES}
        self.queue = self._histogram(QUEUE).labels(*labels)
        self.compute = self._histogram(COMPUTE).labels(*labels)
        self.batch_rows = self._histogram(BATCH_ROWS).labels(*labels)
        self.in_flight = Gauge(*_described(IN_FLIGHT), registry=self._registry).labels(*labels)

    def count(self, outcome: str) -> None:
        """One request ended as one of ``OUTCOMES``."""
        self._outcomes[outcome].inc()

    def exposition(self) -> bytes:
        """Prometheus text format."""
        return generate_latest(self._registry)

    def _histogram(self, metric: Metric) -> Histogram:
        return Histogram(*_described(metric), registry=self._registry, buckets=metric.buckets)


def _described(metric: Metric) -> tuple[str, str, tuple[str, ...]]:
    return metric.name, metric.help, metric.labels
