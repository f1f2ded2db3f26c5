"""What a worker tells Prometheus, through prometheus_client's files for several processes.

That library chooses the files when it is imported, from ``PROMETHEUS_MULTIPROC_DIR``.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
import prometheus_client as prometheus
from prometheus_client import CollectorRegistry

from serving.backends.fastapi.metering import CLIENT_GONE, Exchange, Inference
from serving.metrics import table
from serving.metrics.buckets import BATCH_ROWS, PHASE_NS, bounds_with
from serving.metrics.table import Metric
from serving.models.repository import Model
from serving.protocol import Array
from serving.statistics import OUTCOMES

_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))
_OTHER = "other"


class Metrics:
    """All that a worker tells; each series of its model starts at zero.

    Args:
        slo_ns: the objective, if there is one.
        steps: of a pipeline, its front half and the model behind it; the time of each is told under
            its own name, as with Triton.
        registry: where the metrics can be read in this process; the files need none.
    """

    def __init__(
        self,
        model: str,
        version: int,
        slo_ns: int | None,
        registry: CollectorRegistry | None = None,
        *,
        steps: Sequence[Model] = (),
    ) -> None:
        rows, labels = _Rows(registry), (model, str(version))
        timed = [*((step.name, str(step.version)) for step in steps), labels]
        first, last = timed[0], timed[max(len(steps) - 1, 0)]
        self._http_requests = rows.counter(table.HTTP_REQUESTS)
        self._http_seconds = rows.durations(table.HTTP_SECONDS)
        requests = rows.counter(table.REQUESTS)
        self._requests = {outcome: requests.labels(*labels, outcome) for outcome in OUTCOMES}
        self._slo_ns = slo_ns
        if slo_ns is not None:
            self._within_slo = rows.counter(table.WITHIN_SLO).labels(*labels)
        queue, compute = rows.durations(table.QUEUE), rows.durations(table.COMPUTE)
        total = rows.durations(table.TOTAL, bounds_with(PHASE_NS, slo_ns))
        batch_rows = rows.histogram(table.BATCH_ROWS, BATCH_ROWS)
        for family in (queue, compute, total, batch_rows):
            for one in timed:
                family.labels(*one)
        self._queue, self._total = queue.labels(*first), total.labels(*labels)
        self._compute, self._batch_rows = compute.labels(*last), batch_rows.labels(*last)
        self._front = compute.labels(*first) if steps else None
        self._in_flight = rows.gauge(table.IN_FLIGHT, "livesum").labels(*labels)
        self._pending = rows.gauge(table.PENDING, "livesum").labels(*labels)
        rows.gauge(table.INSTANCES, "livesum").labels(*labels).set(1)
        rows.gauge(table.LOADED, "livemax").labels(model).set(1)

    def publish(self, exchanges: Iterable[Exchange], *, in_flight: int, pending: int) -> None:
        """Count what has been answered since the last time, and say what is there now."""
        self._in_flight.set(in_flight)
        self._pending.set(pending)
        alike: defaultdict[tuple[str, str, int], list[Exchange]] = defaultdict(list)
        for exchange in exchanges:
            alike[exchange[:3]].append(exchange)
        for (sent, route, status), own in alike.items():
            method = sent if sent in _METHODS else _OTHER
            spent_ns = [done_ns - began_ns for _, _, _, began_ns, done_ns, _ in own]
            self._http_requests.labels(method, route, status).inc(len(own))
            self._http_seconds.labels(method, route).observe_many(_in_s(spent_ns))
            told = [(one, done_ns) for _, _, _, _, done_ns, one in own if one]
            if told:
                self._count_inferences(told, status)

    def _count_inferences(self, told: Sequence[tuple[Inference, int]], status: int) -> None:
        """Those that ended alike: all by outcome, the computed by phase, the right by total."""
        self._requests[_outcome(status)].inc(len(told))
        computed = [one for one, _ in told if one.computed_ns]
        self._queue.observe_many(_in_s([one.started_ns - one.queued_ns for one in computed]))
        if self._front is not None:
            self._front.observe_many(_in_s([one.prepared_ns - one.started_ns for one in computed]))
        begun_ns = [one.prepared_ns or one.started_ns for one in computed]
        spent_ns = [one.computed_ns - ns for one, ns in zip(computed, begun_ns, strict=True)]
        self._compute.observe_many(_in_s(spent_ns))
        self._batch_rows.observe_many(np.array([one.rows for one in computed]))
        if status == 200:
            total_ns = [done_ns - one.queued_ns for one, done_ns in told]
            self._total.observe_many(_in_s(total_ns))
            if self._slo_ns is not None:
                self._within_slo.inc(sum(one_ns <= self._slo_ns for one_ns in total_ns))


class _Histogram(prometheus.Histogram):
    def observe_many(self, values: Array) -> None:
        """What ``observe`` would do with each of them, in fewer writes."""
        places = np.searchsorted(self._upper_bounds, values)
        for place, count in Counter(places.tolist()).items():
            self._buckets[place].inc(count)
        self._sum.inc(float(values.sum()))


class _Rows:
    """Makes prometheus_client's objects from rows of the table."""

    def __init__(self, registry: CollectorRegistry | None) -> None:
        self._registry = registry

    def counter(self, row: Metric) -> prometheus.Counter:
        return prometheus.Counter(row.name, row.help, row.labels, registry=self._registry)

    def gauge(self, row: Metric, mode: Literal["livesum", "livemax"]) -> prometheus.Gauge:
        """``mode`` says how the workers that live are put together; others no longer count."""
        return prometheus.Gauge(
            row.name, row.help, row.labels, registry=self._registry, multiprocess_mode=mode
        )

    def histogram(self, row: Metric, bounds: Iterable[float]) -> _Histogram:
        return _Histogram(
            row.name, row.help, row.labels, registry=self._registry, buckets=tuple(bounds)
        )

    def durations(self, row: Metric, bounds_ns: Iterable[int] = PHASE_NS) -> _Histogram:
        return self.histogram(row, (bound / 1e9 for bound in bounds_ns))


def _in_s(durations_ns: Sequence[int]) -> Array:
    # The same division as of the bounds, so that a duration on a bound compares equal to it.
    return np.array(durations_ns) / 1e9


def _outcome(status: int) -> str:
    """Of ``OUTCOMES``. Nothing is refused nor expires here: requests wait as long as it takes."""
    if status == 200:
        return "ok"
    if status == CLIENT_GONE:
        return "cancelled"
    return "server_fault" if status >= 500 else "client_fault"
