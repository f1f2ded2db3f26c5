"""Dynamic batching: requests wait in one queue, instances take as many as belong together.

The meaning of ``max_queue_delay`` and ``preferred_batch_size`` is Triton's (model configuration,
"Dynamic Batcher"): a batch leaves when it is full or of a preferred size, or when its oldest
request has waited for the delay. Only requests of equal shapes (without the batch axis) are joined.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from serving.errors import ServerError
from serving.models.config import ModelConfig
from serving.protocol import Array

Run = Callable[[Mapping[str, Array]], Mapping[str, Array]]
Shapes = tuple[tuple[str, tuple[int, ...]], ...]


class QueueFullError(Exception):
    """The queue takes no more, being full or closed; the client should come back later."""


@dataclass(frozen=True)
class Answer:
    """Outputs of one request, and where its time went.

    Attributes:
        batch_rows: rows of the batch that it was computed in.
    """

    outputs: Mapping[str, Array]
    queue_ns: int
    compute_ns: int
    batch_rows: int


@dataclass(frozen=True)
class _Waiting:
    inputs: Mapping[str, Array]
    rows: int
    shapes: Shapes
    since_ns: int
    future: Future[Answer] = field(default_factory=Future)


class Batcher:
    """Runs requests on a model's instances, one thread each.

    Args:
        config: batch limit and delay; without dynamic batching every request runs alone.
        instances: one ``run`` callable per instance, each called by one thread only.
        queue_limit: requests that may wait; more are refused.
        on_batch: told the rows of each batch that was computed, from the instance's thread.
    """

    def __init__(
        self,
        config: ModelConfig,
        instances: Sequence[Run],
        *,
        queue_limit: int,
        on_batch: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._batched = config.batched
        self._on_batch = on_batch
        self._batching = config.dynamic_batching if config.batched else None
        self._max_rows = config.max_batch_size if self._batching else 1
        self._limit = queue_limit
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._serve, args=(run,), name=f"instance-{n}", daemon=True)
            for n, run in enumerate(instances)
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, inputs: Mapping[str, Array], rows: int) -> Future[Answer]:
        """Queue one validated request.

        Raises:
            QueueFullError: too many requests wait already, or the batcher is closed.
        """
        shapes = tuple((name, array.shape[1:]) for name, array in inputs.items())
        request = _Waiting(inputs, rows, shapes, time.monotonic_ns())
        with self._changed:
            if self._closed:
                raise QueueFullError("the server is shutting down")
            if len(self._waiting) >= self._limit:
                raise QueueFullError(f"{self._limit} requests are waiting already")
            self._waiting.append(request)
            self._changed.notify()
        return request.future

    def close(self) -> None:
        """Finish what is queued, then end the threads."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    def _serve(self, run: Run) -> None:
        while batch := self._next_batch():
            self._run_batch(run, batch)

    def _next_batch(self) -> list[_Waiting]:
        """Requests that belong together; empty when the batcher is closed and drained."""
        with self._changed:
            while True:
                while not self._waiting:
                    if self._closed:
                        return []
                    self._changed.wait()
                left_ns = self._left_ns()
                if left_ns <= 0:
                    return self._take()
                self._changed.wait(left_ns / 1e9)

    def _left_ns(self) -> int:
        """How long the oldest request's batch may still wait for company."""
        if self._batching is None or self._closed or not self._batching.max_queue_delay_ns:
            return 0
        first = self._waiting[0]
        rows = sum(request.rows for request in self._waiting if request.shapes == first.shapes)
        if rows >= self._max_rows or rows in self._batching.preferred_batch_sizes:
            return 0
        return first.since_ns + self._batching.max_queue_delay_ns - time.monotonic_ns()

    def _take(self) -> list[_Waiting]:
        """Take the oldest request and those that fit beside it, oldest first."""
        batch = [self._waiting.popleft()]
        rows = batch[0].rows
        kept: deque[_Waiting] = deque()
        while self._waiting and rows < self._max_rows:
            request = self._waiting.popleft()
            if request.shapes == batch[0].shapes and rows + request.rows <= self._max_rows:
                batch.append(request)
                rows += request.rows
            else:
                kept.append(request)
        self._waiting.extendleft(reversed(kept))
        if self._waiting:
            # Their wake-up may have gone to this thread; another instance can serve them now.
            self._changed.notify()
        return batch

    def _run_batch(self, run: Run, batch: Sequence[_Waiting]) -> None:
        """Compute and hand out answers. When a batch fails, each request is tried alone, so that
        only the one at fault fails.
        """
        live = [request for request in batch if request.future.set_running_or_notify_cancel()]
        if not live:
            return
        try:
            self._compute(run, live)
        except Exception as error:
            if len(live) == 1:
                live[0].future.set_exception(error)
                return
            for request in live:
                try:
                    self._compute(run, [request])
                except Exception as own:
                    request.future.set_exception(own)

    def _compute(self, run: Run, requests: Sequence[_Waiting]) -> None:
        started_ns = time.monotonic_ns()
        outputs = run(_joined(requests))
        compute_ns = time.monotonic_ns() - started_ns
        rows = sum(request.rows for request in requests)
        if self._batched:
            _require_rows(outputs, rows)
        self._on_batch(rows)
        at = 0
        for request in requests:
            own = outputs
            if len(requests) > 1:
                own = {name: array[at : at + request.rows] for name, array in outputs.items()}
            at += request.rows
            request.future.set_result(Answer(own, started_ns - request.since_ns, compute_ns, rows))


def _require_rows(outputs: Mapping[str, Array], rows: int) -> None:
    """Slices of an output with other rows would be wrong or empty, and nobody would be told."""
    for name, array in outputs.items():
        if array.shape[:1] != (rows,):
            raise ServerError(
                f"output {name!r} has shape {list(array.shape)} for a batch of {rows}",
                hint="The model does not batch: set max_batch_size to 0 in its config.pbtxt.",
            )


def _joined(requests: Sequence[_Waiting]) -> Mapping[str, Array]:
    if len(requests) == 1:
        return requests[0].inputs
    names = requests[0].inputs
    return {name: np.concatenate([request.inputs[name] for request in requests]) for name in names}
