"""A model's queue and its instances on an event loop: submit, dispatch, answer.

Everything here runs on the loop's thread, so nothing is locked; only ``run`` callables run
elsewhere, each on one thread.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from queue import SimpleQueue

from serving.batching.instances import BatchResult, Run, run_batch
from serving.batching.queue import (
    CancelledError,
    ExpiredError,
    Pending,
    QueueFullError,
    RequestQueue,
)
from serving.models.config import ModelConfig
from serving.timerfd import TimerFd


@dataclass(slots=True, eq=False)
class _Dispatched:
    """A batch that an instance has; ``results`` come when it is done."""

    requests: Sequence[Pending]
    results: list[BatchResult] = field(default_factory=list)


class Batcher:
    """Runs requests on a model's instances, one thread each.

    Args:
        config: batch limit, delay and queue policy; without dynamic batching each request runs
            alone.
        instances: one ``run`` callable per instance, each called by one thread only.
        queue_limit: requests that may wait; more are refused.
        on_batch: told of each batch once its requests have been answered.
    """

    def __init__(
        self,
        config: ModelConfig,
        instances: Sequence[Run],
        *,
        queue_limit: int,
        on_batch: Callable[[BatchResult], None] = lambda _: None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        batching = config.dynamic_batching if config.batched else None
        self._queue = RequestQueue(config.max_batch_size, batching, queue_limit)
        self._batched = config.batched
        self._delayed = bool(batching and batching.max_queue_delay_ns)
        self._ordered: deque[_Dispatched] | None = (
            deque() if batching and batching.preserve_ordering else None
        )
        self._on_batch = on_batch
        self._closed = False
        self._dispatching = False
        self._in_flight = 0
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._timer = TimerFd()
        self._loop.add_reader(self._timer.fd, self._ring)
        self._expiry: asyncio.TimerHandle | None = None
        self._expiry_ns = 0
        self._inboxes = [SimpleQueue[_Dispatched | None]() for _ in instances]
        self._idle = list(self._inboxes)
        self._threads = [
            threading.Thread(target=self._serve, args=(run, inbox), name=f"instance-{n}")
            for n, (run, inbox) in enumerate(zip(instances, self._inboxes, strict=True))
        ]
        for thread in self._threads:
            thread.daemon = True
            thread.start()

    @property
    def waiting(self) -> int:
        """Requests that no instance has taken yet."""
        return len(self._queue)

    def submit(self, request: Pending) -> None:
        """Queue a validated request; ``request.done`` is called later, on the loop.

        Raises:
            QueueFullError: too many requests wait already, or the batcher is closed.
        """
        if self._closed:
            raise QueueFullError("the model is being unloaded")
        self._queue.push(request, time.monotonic_ns())
        if request.deadline_ns:
            self._watch_deadline(request.deadline_ns)
        if self._idle and not self._dispatching:
            # At the end of this turn of the loop: whatever else it reads now may come along.
            self._dispatching = True
            self._loop.call_soon(self._dispatch)

    def cancel(self, request: Pending) -> None:
        """The client has gone: a request that still waits is never computed."""
        if self._queue.cancel(request):
            request.done(CancelledError("the client has gone"))
            self._note_quiet()

    async def close(self) -> None:
        """Take no more, finish what is there, end the threads."""
        self._closed = True
        self._dispatch()
        self._note_quiet()
        await self._quiet.wait()
        for inbox in self._inboxes:
            inbox.put(None)
        await asyncio.gather(*(asyncio.to_thread(thread.join) for thread in self._threads))
        self._loop.remove_reader(self._timer.fd)
        self._timer.close()
        if self._expiry:
            self._expiry.cancel()

    def _dispatch(self) -> None:
        """Give every idle instance a batch, as far as some are due."""
        self._dispatching = False
        while self._idle:
            # A queue that will be closed waits for no company.
            now_ns = time.monotonic_ns() if not self._closed else 1 << 62
            requests = self._queue.take(now_ns)
            if not requests:
                break
            batch = _Dispatched(requests)
            self._in_flight += len(requests)
            self._quiet.clear()
            if self._ordered is not None:
                self._ordered.append(batch)
            self._idle.pop().put(batch)
        else:
            return
        if self._delayed:
            due_ns = self._queue.due_ns()
            if due_ns is not None:
                self._timer.set(due_ns)

    def _serve(self, run: Run, inbox: SimpleQueue[_Dispatched | None]) -> None:
        while (batch := inbox.get()) is not None:
            batch.results = run_batch(run, batch.requests, batched=self._batched)
            self._loop.call_soon_threadsafe(self._finish, inbox, batch)

    def _finish(self, inbox: SimpleQueue[_Dispatched | None], batch: _Dispatched) -> None:
        self._idle.append(inbox)
        self._dispatch()
        if self._ordered is None:
            self._deliver(batch)
            return
        while self._ordered and self._ordered[0].results:
            self._deliver(self._ordered.popleft())

    def _deliver(self, batch: _Dispatched) -> None:
        self._in_flight -= len(batch.requests)
        for result in batch.results:
            if result.fault is None:
                _hand_out(result)
            else:
                for request in result.requests:
                    request.done(result.fault)
            self._on_batch(result)
        self._note_quiet()

    def _note_quiet(self) -> None:
        if not self._in_flight and not self._queue:
            self._quiet.set()
        else:
            self._quiet.clear()

    def _ring(self) -> None:
        self._timer.clear()
        self._dispatch()

    def _watch_deadline(self, deadline_ns: int) -> None:
        if self._expiry is not None:
            if deadline_ns >= self._expiry_ns:
                return
            self._expiry.cancel()
        self._expiry_ns = deadline_ns
        in_s = max(0, deadline_ns - time.monotonic_ns()) / 1e9
        self._expiry = self._loop.call_later(in_s, self._expire)

    def _expire(self) -> None:
        self._expiry = None
        for request in self._queue.expire(time.monotonic_ns()):
            waited_ms = (time.monotonic_ns() - request.since_ns) / 1e6
            request.done(ExpiredError(f"the request waited {waited_ms:.0f} ms, longer than it may"))
        deadline_ns = self._queue.next_deadline_ns()
        if deadline_ns is not None:
            self._watch_deadline(deadline_ns)
        self._note_quiet()


def _hand_out(result: BatchResult) -> None:
    requests, outputs = result.requests, result.outputs
    if len(requests) == 1:
        requests[0].done(outputs)
        return
    at = 0
    for request in requests:
        end = at + request.rows
        request.done({name: array[at:end] for name, array in outputs.items()})
        at = end
