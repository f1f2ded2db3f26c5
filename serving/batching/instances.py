"""What an instance does with a batch, on a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serving.batching.queue import Pending
from serving.errors import ServerError
from serving.protocol import Array

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclass(frozen=True)
class BatchResult:
    """What one run gave, for requests that stand in the same order.

    Attributes:
        fault: why there are no ``outputs``.
        input_ns: joining the inputs.
        compute_ns: inside the session.
    """

    requests: Sequence[Pending]
    rows: int
    outputs: Mapping[str, Array]
    fault: Exception | None
    started_ns: int
    input_ns: int
    compute_ns: int


def run_batch(run: Run, requests: Sequence[Pending], *, batched: bool) -> list[BatchResult]:
    """Compute the requests together.

    When a batch fails, each of its requests is tried alone, so that only the one at fault fails.
    """
    together = _run(run, requests, batched)
    if together.fault is None or len(requests) == 1:
        return [together]
    return [_run(run, [request], batched) for request in requests]


def _run(run: Run, requests: Sequence[Pending], batched: bool) -> BatchResult:
    started_ns = joined_ns = time.monotonic_ns()
    rows = sum(request.rows for request in requests)
    outputs: Mapping[str, Array] = {}
    fault: Exception | None = None
    try:
        inputs = _joined(requests)
        joined_ns = time.monotonic_ns()
        outputs = run(inputs)
        if batched:
            _require_rows(outputs, rows)
    except Exception as error:
        fault = error
    done_ns = time.monotonic_ns()
    return BatchResult(
        requests, rows, outputs, fault, started_ns, joined_ns - started_ns, done_ns - joined_ns
    )


def _joined(requests: Sequence[Pending]) -> Mapping[str, Array]:
    if len(requests) == 1:
        return requests[0].inputs
    names = requests[0].inputs
    return {name: np.concatenate([request.inputs[name] for request in requests]) for name in names}


def _require_rows(outputs: Mapping[str, Array], rows: int) -> None:
    """Slices of an output with other rows would be wrong or empty, and nobody would be told."""
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise ServerError(
                f"output {name!r} has shape {list(array.shape)} for a batch of {rows}",
                hint="The model does not batch: set max_batch_size to 0 in its config.pbtxt.",
            )
