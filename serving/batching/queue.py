"""Which requests leave the queue together, and when; pure, with the time given by the caller.

``max_queue_delay``, ``preferred_batch_size`` and the queue policy mean what they mean to Triton
(model configuration, "Dynamic Batcher"): a batch leaves when it is full or of a preferred size, or
when its oldest request has waited for the delay. Only requests of equal shapes are joined.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Mapping

from serving.models.scheduling import DynamicBatching, QueuePolicy
from serving.protocol import Array


class RefusedError(Exception):
    """The request was not computed, through no fault of its own; it may come again later."""


class QueueFullError(RefusedError):
    """The queue takes no more, being full or closed."""


class ExpiredError(RefusedError):
    """The request waited longer than it may."""


class CancelledError(Exception):
    """The client went away before the request was computed."""


Outcome = Mapping[str, Array] | Exception
"""The outputs of a request, or why there are none."""


class Pending:
    """A validated request, from when it came until ``done`` is told its outcome, once.

    Args:
        inputs: input name to array.
        shapes: equal for requests that may be joined.
        timeout_ns: how long it may wait; 0 for as long as the model allows.
    """

    __slots__ = ("deadline_ns", "inputs", "rows", "shapes", "since_ns", "timeout_ns", "waiting")

    def __init__(
        self, inputs: Mapping[str, Array], rows: int, shapes: Hashable, timeout_ns: int = 0
    ) -> None:
        self.inputs = inputs
        self.rows = rows
        self.shapes = shapes
        self.timeout_ns = timeout_ns
        self.since_ns = 0
        self.deadline_ns = 0
        self.waiting = False

    def done(self, outcome: Outcome) -> None:
        """Called on the loop's thread; must not raise."""
        raise NotImplementedError


class RequestQueue:
    """Requests that wait.

    Args:
        max_rows: rows of the largest batch.
        batching: ``None`` when every request leaves alone.
        limit: requests that may wait, unless the model's own policy says fewer.
    """

    def __init__(self, max_rows: int, batching: DynamicBatching | None, limit: int) -> None:
        self._batching = batching
        self._policy = batching.queue if batching else QueuePolicy()
        self._max_rows = max_rows
        self.limit = min(limit, self._policy.max_size or limit)
        self._groups: dict[Hashable, deque[Pending]] = {}
        self._late: deque[Pending] = deque()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def push(self, request: Pending, now_ns: int) -> None:
        """Let ``request`` wait.

        Raises:
            QueueFullError: too many wait already.
        """
        if self._count >= self.limit:
            raise QueueFullError(f"{self._count} requests are waiting already")
        request.since_ns = now_ns
        request.waiting = True
        timeout_ns = self._timeout_ns(request)
        if timeout_ns:
            request.deadline_ns = now_ns + timeout_ns
        self._count += 1
        key = request.shapes if self._batching else None
        group = self._groups.get(key)
        if group is None:
            group = self._groups[key] = deque()
        group.append(request)

    def take(self, now_ns: int) -> list[Pending]:
        """The next batch, oldest first; empty when none is due."""
        for key, group in list(self._groups.items()):
            count = self._due(group, now_ns)
            if count:
                return self._leave(key, group, count)
        return [] if self._groups else self._leave_late()

    def due_ns(self) -> int | None:
        """When the next batch is due if nothing more comes; ``None`` when nothing waits."""
        if not self._groups:
            return 0 if self._late else None
        delay_ns = self._batching.max_queue_delay_ns if self._batching else 0
        return min(group[0].since_ns for group in self._groups.values()) + delay_ns

    def expire(self, now_ns: int) -> list[Pending]:
        """Take out the requests past their deadline that are to be refused.

        Those of a model that does not reject lose their place only: they go behind all others.
        """
        refused = []
        for group in self._groups.values():
            for request in [r for r in group if r.waiting and 0 < r.deadline_ns <= now_ns]:
                if self._policy.reject or request.timeout_ns:
                    self._stop_waiting(request)
                    refused.append(request)
                else:
                    group.remove(request)
                    request.deadline_ns = 0
                    self._late.append(request)
        self._forget_gone()
        return refused

    def next_deadline_ns(self) -> int | None:
        """When the next request must be refused or lose its place; ``None`` when none must."""
        waiting = (r.deadline_ns for group in self._groups.values() for r in group if r.waiting)
        return min((deadline_ns for deadline_ns in waiting if deadline_ns), default=None)

    def cancel(self, request: Pending) -> bool:
        """Take ``request`` out; ``False`` when it waits no longer."""
        if not request.waiting:
            return False
        self._stop_waiting(request)
        self._forget_gone()
        return True

    def _timeout_ns(self, request: Pending) -> int:
        """The request's own timeout counts where the policy lets it shorten the model's."""
        own, default = request.timeout_ns, self._policy.timeout_ns
        if not own or (self._batching and not self._policy.may_shorten):
            request.timeout_ns = 0
            return default
        return min(own, default or own)

    def _due(self, group: deque[Pending], now_ns: int) -> int:
        """How many requests of ``group``, which starts with one that waits, leave now."""
        if self._batching is None:
            return 1
        rows = count = preferred = 0
        full = False
        for request in group:
            if not request.waiting:
                continue
            full = rows + request.rows > self._max_rows
            if full:
                break
            rows += request.rows
            count += 1
            if rows in self._batching.preferred_batch_sizes:
                preferred = count
        if preferred:
            return preferred
        waited_ns = now_ns - group[0].since_ns
        full = full or rows == self._max_rows
        return count if full or waited_ns >= self._batching.max_queue_delay_ns else 0

    def _leave(self, key: Hashable, group: deque[Pending], count: int) -> list[Pending]:
        batch: list[Pending] = []
        while len(batch) < count:
            request = group.popleft()
            if request.waiting:
                self._stop_waiting(request)
                batch.append(request)
        while group and not group[0].waiting:
            group.popleft()
        if not group:
            del self._groups[key]
        return batch

    def _leave_late(self) -> list[Pending]:
        while self._late:
            request = self._late.popleft()
            if request.waiting:
                self._stop_waiting(request)
                return [request]
        return []

    def _stop_waiting(self, request: Pending) -> None:
        request.waiting = False
        self._count -= 1

    def _forget_gone(self) -> None:
        """Every group that stays starts with a request that waits."""
        for key, group in list(self._groups.items()):
            while group and not group[0].waiting:
                group.popleft()
            if not group:
                del self._groups[key]
