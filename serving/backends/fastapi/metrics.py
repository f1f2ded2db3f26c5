"""What a worker tells Prometheus, through prometheus_client's files for several processes.

That library chooses the files when it is imported, from ``PROMETHEUS_MULTIPROC_DIR``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Literal

import numpy as np
import prometheus_client as prometheus
from prometheus_client import CollectorRegistry

from serving.backends.fastapi.metering import CLIENT_GONE, Ledger
from serving.metrics import table
from serving.metrics.buckets import BATCH_ROWS, PHASE_NS, bounds_with
from serving.metrics.table import Metric
from serving.protocol import Array
from serving.statistics import OUTCOMES

_LINE = np.dtype([(column, np.int64) for column in Ledger.COLUMNS])


class Metrics:
    """All that a worker tells; each series of its model starts at zero.

    Args:
        slo_ns: the objective, if there is one.
        registry: where the metrics can be read in this process; the files need none.
    """

    def __init__(
        self,
        model: str,
        version: int,
        slo_ns: int | None,
        registry: CollectorRegistry | None = None,
    ) -> None:
        rows, labels = _Rows(registry), (model, str(version))
        self._http_requests = rows.counter(table.HTTP_REQUESTS)
        self._http_seconds = rows.durations(table.HTTP_SECONDS)
        requests = rows.counter(table.REQUESTS)
        self._requests = {outcome: requests.labels(*labels, outcome) for outcome in OUTCOMES}
        self._slo_ns = slo_ns
        if slo_ns is not None:
            self._within_slo = rows.counter(table.WITHIN_SLO).labels(*labels)
        self._queue = rows.durations(table.QUEUE).labels(*labels)
        self._compute = rows.durations(table.COMPUTE).labels(*labels)
        self._total = rows.durations(table.TOTAL, bounds_with(PHASE_NS, slo_ns)).labels(*labels)
        self._batch_rows = rows.histogram(table.BATCH_ROWS, BATCH_ROWS).labels(*labels)
        self._in_flight = rows.gauge(table.IN_FLIGHT, "livesum").labels(*labels)
        self._pending = rows.gauge(table.PENDING, "livesum").labels(*labels)
        rows.gauge(table.INSTANCES, "livesum").labels(*labels).set(1)
        rows.gauge(table.LOADED, "livemax").labels(model).set(1)

    def publish(self, ledger: Ledger, *, in_flight: int, pending: int) -> None:
        """Count what is in ``ledger`` and empty it; say how many requests there are now."""
        self._in_flight.set(in_flight)
        self._pending.set(pending)
        lines = np.frombuffer(ledger.take(), _LINE)
        for place in np.unique(lines["series"]):
            series = ledger.series[place]
            own = lines[lines["series"] == place]
            self._http_requests.labels(*series).inc(len(own))
            self._http_seconds.labels(series.method, series.route).observe_many(
                _in_s(own["done_ns"] - own["began_ns"])
            )
            self._count_inferences(own[own["rows"] >= 0], series.status)

    def _count_inferences(self, lines: Array, status: int) -> None:
        """Those that ended alike: all by outcome, the computed in the phases, the right in all."""
        if not len(lines):
            return
        self._requests[_outcome(status)].inc(len(lines))
        computed = lines[lines["computed_ns"] > 0]
        self._queue.observe_many(_in_s(computed["started_ns"] - computed["queued_ns"]))
        self._compute.observe_many(_in_s(computed["computed_ns"] - computed["started_ns"]))
        self._batch_rows.observe_many(computed["rows"])
        if status == 200:
            total_ns = lines["done_ns"] - lines["queued_ns"]
            self._total.observe_many(_in_s(total_ns))
            if self._slo_ns is not None:
                self._within_slo.inc(int((total_ns <= self._slo_ns).sum()))


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


def _in_s(durations_ns: Array) -> Array:
    # The same division as of the bounds, so that a duration on a bound compares equal to it.
    seconds: Array = durations_ns / 1e9
    return seconds


def _outcome(status: int) -> str:
    """Of ``OUTCOMES``. Nothing is refused nor expires here: requests wait as long as it takes."""
    if status == 200:
        return "ok"
    if status == CLIENT_GONE:
        return "cancelled"
    return "server_fault" if status >= 500 else "client_fault"
