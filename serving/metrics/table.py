"""Every metric that a server of ours has. Documentation and dashboards are made from this table.

Names and units by https://prometheus.io/docs/practices/naming: base units, counters end in
``_total`` where they are written out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal["counter", "gauge", "histogram"]

LABELS = ("model", "version")


@dataclass(frozen=True)
class Metric:
    """One row.

    Attributes:
        name: without the ``_total`` that a counter gets in the text format.
        labels: in order; a target's own labels (job, run, backend) come on top.
        by: who has it: backends of ours, ``generator`` or ``resources``.
    """

    name: str
    kind: Kind
    help: str
    unit: str
    labels: tuple[str, ...] = LABELS
    by: tuple[str, ...] = ("onnxruntime", "fastapi")

    @property
    def sample(self) -> str:
        """The name that a query uses; of a histogram without ``_bucket``, ``_sum``, ``_count``."""
        return f"{self.name}_total" if self.kind == "counter" else self.name


REQUESTS = Metric(
    "infersweep_requests",
    "counter",
    "Inference requests by outcome class",
    "requests",
    (*LABELS, "outcome"),
)
WITHIN_SLO = Metric(
    "infersweep_requests_within_slo",
    "counter",
    "Requests answered rightly within the objective; absent without one",
    "requests",
)
QUEUE = Metric("infersweep_queue_seconds", "histogram", "Time a request waited", "seconds")
COMPUTE = Metric(
    "infersweep_compute_seconds",
    "histogram",
    "Time a request's batch was inside the engine",
    "seconds",
)
TOTAL = Metric(
    "infersweep_request_seconds",
    "histogram",
    "Time from a request's arrival to its answer, of right answers",
    "seconds",
)
BATCH_ROWS = Metric("infersweep_batch_rows", "histogram", "Rows of each batch", "rows")
IN_FLIGHT = Metric("infersweep_in_flight", "gauge", "Requests being answered", "requests")
PENDING = Metric("infersweep_pending", "gauge", "Requests that wait for an instance", "requests")
INSTANCES = Metric(
    "infersweep_instances", "gauge", "Instances of the model; each computes one batch", "instances"
)
LOADED = Metric(
    "infersweep_loaded_versions", "gauge", "Versions that are served", "versions", ("model",)
)
RESTARTS = Metric(
    "infersweep_worker_restarts",
    "counter",
    "Processes that ended on their own and were started again",
    "processes",
    (),
)
PROCESSES = Metric("infersweep_processes", "gauge", "Processes that answer", "processes", ())
THREADS = Metric("infersweep_threads", "gauge", "Threads of those processes", "threads", ())
HTTP_REQUESTS = Metric(
    "infersweep_http_requests",
    "counter",
    "HTTP requests by route template and status",
    "requests",
    ("method", "route", "status"),
    ("fastapi",),
)
HTTP_SECONDS = Metric(
    "infersweep_http_request_seconds",
    "histogram",
    "Time from an HTTP request's head to the end of its answer",
    "seconds",
    ("method", "route"),
    ("fastapi",),
)

SERVER_METRICS = (
    REQUESTS,
    WITHIN_SLO,
    QUEUE,
    COMPUTE,
    TOTAL,
    BATCH_ROWS,
    IN_FLIGHT,
    PENDING,
    INSTANCES,
    LOADED,
    RESTARTS,
    PROCESSES,
    THREADS,
    HTTP_REQUESTS,
    HTTP_SECONDS,
)
