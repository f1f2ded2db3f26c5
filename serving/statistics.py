"""What a model version has done so far: outcomes, phases and batches.

Kept as plain numbers on the event loop's thread. The statistics extension of the protocol and the
Prometheus metrics both read them.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from serving.batching.instances import BatchResult
from serving.metrics.buckets import PHASE_NS, bounds_with

OUTCOMES = ("ok", "client_fault", "refused", "expired", "cancelled", "server_fault")
_FOLD_AT = 4096


class Durations:
    """A count, a sum and a histogram of durations; adding one costs next to nothing."""

    def __init__(self, bounds_ns: tuple[int, ...] = PHASE_NS) -> None:
        self.bounds_ns = bounds_ns
        self.count = 0
        self.total_ns = 0
        self._counts = np.zeros(len(bounds_ns) + 1, np.int64)
        self._recent: list[int] = []

    def add(self, durations_ns: Sequence[int]) -> None:
        self.count += len(durations_ns)
        self.total_ns += sum(durations_ns)
        self._recent += durations_ns
        if len(self._recent) >= _FOLD_AT:
            self._fold()

    def bucket_counts(self) -> list[int]:
        """How many fell into each bucket; the last is for what is above them all."""
        self._fold()
        return [int(count) for count in self._counts]

    def _fold(self) -> None:
        places = np.searchsorted(self.bounds_ns, self._recent)
        self._counts += np.bincount(places, minlength=len(self._counts))
        self._recent.clear()


@dataclass(slots=True)
class BatchTally:
    """Executions of one batch size, and the time of their phases together."""

    count: int = 0
    input_ns: int = 0
    compute_ns: int = 0
    output_ns: int = 0


@dataclass
class VersionStatistics:
    """Attributes: ``in_flight`` requests are being answered; ``batches`` go by their rows.

    With an objective ``slo_ns``, what met it is counted exactly.
    """

    slo_ns: int | None = None
    outcomes: Counter[str] = field(default_factory=Counter)
    in_flight: int = 0
    inferences: int = 0
    last_inference_ms: int = 0
    queue: Durations = field(default_factory=Durations)
    compute: Durations = field(default_factory=Durations)
    total: Durations = field(init=False)
    failed: Durations = field(default_factory=Durations)
    input_ns: int = 0
    output_ns: int = 0
    batches: dict[int, BatchTally] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.total = Durations(bounds_with(PHASE_NS, self.slo_ns))

    def within_slo(self) -> int:
        """Right answers whose time from arrival met the objective.

        Raises:
            ValueError: there is no objective.
        """
        if self.slo_ns is None:
            raise ValueError("no objective was stated")
        place = self.total.bounds_ns.index(self.slo_ns)
        return sum(self.total.bucket_counts()[: place + 1])

    def record(self, result: BatchResult) -> None:
        """A batch whose requests have just been answered."""
        now_ns = time.monotonic_ns()
        since_ns = [request.since_ns for request in result.requests]
        totals_ns = [now_ns - since for since in since_ns]
        if result.fault is not None:
            self.failed.add(totals_ns)
            return
        count, started_ns = len(since_ns), result.started_ns
        output_ns = now_ns - started_ns - result.input_ns - result.compute_ns
        self.total.add(totals_ns)
        self.queue.add([started_ns - since for since in since_ns])
        self.compute.add([result.compute_ns] * count)
        self.input_ns += result.input_ns * count
        self.output_ns += output_ns * count
        self.inferences += result.rows
        self.last_inference_ms = time.time_ns() // 1_000_000
        tally = self.batches.setdefault(result.rows, BatchTally())
        tally.count += 1
        tally.input_ns += result.input_ns
        tally.compute_ns += result.compute_ns
        tally.output_ns += output_ns

    def describe(self, name: str, version: int) -> dict[str, Any]:
        """One entry of the statistics extension's ``model_stats``.

        Source: Triton's statistics extension. The time of a batch counts for each of its requests.
        """
        count = self.total.count
        phases = {
            "success": (count, self.total.total_ns),
            "fail": (self.failed.count, self.failed.total_ns),
            "queue": (count, self.queue.total_ns),
            "compute_input": (count, self.input_ns),
            "compute_infer": (count, self.compute.total_ns),
            "compute_output": (count, self.output_ns),
            "cache_hit": (0, 0),
            "cache_miss": (0, 0),
        }
        return {
            "name": name,
            "version": str(version),
            "last_inference": self.last_inference_ms,
            "inference_count": self.inferences,
            "execution_count": sum(batch.count for batch in self.batches.values()),
            "inference_stats": {phase: _duration(*values) for phase, values in phases.items()},
            "batch_stats": [
                {
                    "batch_size": rows,
                    "compute_input": _duration(batch.count, batch.input_ns),
                    "compute_infer": _duration(batch.count, batch.compute_ns),
                    "compute_output": _duration(batch.count, batch.output_ns),
                }
                for rows, batch in sorted(self.batches.items())
            ],
        }


def _duration(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}
