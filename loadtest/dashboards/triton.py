"""What Triton publishes in the place of our metrics, and what it does not.

Source: Triton 2.51, docs/user_guide/metrics.md, and what it answers: a request that waited too long
in the queue counts as REJECTED; one that is refused because the queue is full, and one that does
not fit the model, count nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping

SUCCESS = "nv_inference_request_success"
FAILURE = "nv_inference_request_failure"
INFERENCES = "nv_inference_count"
EXECUTIONS = "nv_inference_exec_count"
REQUEST_US = "nv_inference_request_duration_us"
QUEUE_US = "nv_inference_queue_duration_us"
COMPUTE_US = "nv_inference_compute_infer_duration_us"
PENDING = "nv_inference_pending_request_count"

TRITON: Mapping[str, tuple[str, ...]] = {
    SUCCESS: ("model", "version"),
    FAILURE: ("model", "version", "reason"),
    INFERENCES: ("model", "version"),
    EXECUTIONS: ("model", "version"),
    REQUEST_US: ("model", "version"),
    QUEUE_US: ("model", "version"),
    COMPUTE_US: ("model", "version"),
    PENDING: ("model", "version"),
}
"""Every metric of Triton that is used, with its labels."""

REASONS: Mapping[str, str] = {
    "REJECTED": "expired",
    "CANCELED": "cancelled",
    "BACKEND": "server_fault",
    "OTHER": "server_fault",
}
"""Triton's reason of a failure to our outcome (``serving.statistics.OUTCOMES``)."""

LACKS: Mapping[str, str] = {
    "infersweep_requests_total": "outcomes `refused` and `client_fault`: a request that finds the "
    "queue full, or does not fit the model, is counted nowhere",
    "infersweep_requests_within_slo_total": "Triton knows no objective; only the generator tells "
    "what met it",
    "infersweep_queue_seconds": "a sum without a histogram: a mean, no percentile",
    "infersweep_compute_seconds": "a sum without a histogram: a mean, no percentile",
    "infersweep_request_seconds": "a sum without a histogram: a mean, no percentile",
    "infersweep_batch_rows": "rows and batches as two counters: a mean, no histogram",
    "infersweep_in_flight": "no gauge; `nv_inference_pending_request_count` are those that wait",
    "infersweep_instances": "not published; `config.pbtxt` states them",
    "infersweep_loaded_versions": "not published; the repository index lists them",
    "infersweep_worker_restarts_total": "Triton is one process that nobody starts again",
    "infersweep_processes": "not published; see the resources of the role `server`",
    "infersweep_threads": "not published; see the resources of the role `server`",
}
"""Samples of ours without a counterpart, and why."""
