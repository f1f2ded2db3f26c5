"""A pipeline in memory: each request waits for the front half first, then for the model behind it.

Both steps are models of the catalogue, with queues and statistics of their own, as with Triton.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import TypeAlias

from serving.backends.onnxruntime.faults import UnknownModelError
from serving.backends.onnxruntime.loaded import LoadedVersion
from serving.backends.onnxruntime.plan import Planner
from serving.backends.onnxruntime.settings import Limits
from serving.batching import CancelledError, Outcome, Pending, RefusedError
from serving.exposition import Source
from serving.models.repository import Model
from serving.protocol import Array
from serving.statistics import VersionStatistics


class LoadedPipeline:
    """Serves requests; made on the event loop.

    Args:
        find: the newest version of a served model, by its name and an empty version.
    """

    unbatched = ""

    def __init__(
        self,
        model: Model,
        version: int,
        find: Callable[[str, str], Loaded],
        limits: Limits,
        signature: object,
        statistics: VersionStatistics,
    ) -> None:
        self.model, self.version, self.config = model, version, model.config
        self.name = self.config.name
        self.signature = signature
        self.statistics = statistics
        self.planner = Planner(self.config, version, limits.elements)
        self._steps = tuple(step.name for step in model.steps)
        self._find = find
        self._under_way: dict[Pending, _Step] = {}
        self._closed = False
        self._quiet = asyncio.Event()
        self._quiet.set()

    @property
    def source(self) -> Source:
        """What its metrics are made of; its steps tell who waits for which instance."""
        return Source(self.name, self.version, self.statistics, pending=0, instances=0)

    def submit(self, request: Pending) -> None:
        """Raises RefusedError when it cannot wait, UnknownModelError when a step is gone."""
        if self._closed:
            raise RefusedError("the model is being unloaded")
        request.since_ns = time.monotonic_ns()
        self._ask(request, 0, request.inputs)
        self._quiet.clear()

    def cancel(self, request: Pending) -> None:
        """The client has gone: a step that has not begun is never computed."""
        step = self._under_way.get(request)
        if step is not None:
            step.cancelled = True
            step.asked.cancel(step)

    async def close(self) -> None:
        """Take no more, and wait for what is under way."""
        self._closed = True
        await self._quiet.wait()

    def went_on(self, step: _Step, outcome: Outcome) -> None:
        """A step is done: ask the next one, or answer."""
        request, number = step.request, step.number + 1
        if step.cancelled:
            outcome = CancelledError("the client has gone")
        if not isinstance(outcome, Exception) and number < len(self._steps):
            try:
                self._ask(request, number, outcome)
            except (RefusedError, UnknownModelError) as error:
                outcome = error
            else:
                return
        del self._under_way[request]
        request.done(outcome)
        self._record(request, outcome)
        if not self._under_way:
            self._quiet.set()

    def _ask(self, request: Pending, number: int, inputs: Mapping[str, Array]) -> None:
        step = _Step(self, request, number, inputs, self._find(self._steps[number], ""))
        step.asked.submit(step)
        self._under_way[request] = step

    def _record(self, request: Pending, outcome: Outcome) -> None:
        spent_ns = [time.monotonic_ns() - request.since_ns]
        if isinstance(outcome, CancelledError):
            return
        if isinstance(outcome, Exception):
            self.statistics.failed.add(spent_ns)
            return
        self.statistics.total.add(spent_ns)
        self.statistics.inferences += request.rows
        self.statistics.last_inference_ms = time.time_ns() // 1_000_000


Loaded: TypeAlias = LoadedVersion | LoadedPipeline


class _Step(Pending):
    """A request as one step sees it."""

    __slots__ = ("_pipeline", "asked", "cancelled", "number", "request")

    def __init__(
        self,
        pipeline: LoadedPipeline,
        request: Pending,
        number: int,
        inputs: Mapping[str, Array],
        asked: Loaded,
    ) -> None:
        shapes = tuple(sorted((name, array.shape[1:]) for name, array in inputs.items()))
        super().__init__(inputs, request.rows, shapes, request.timeout_ns)
        self._pipeline = pipeline
        self.request = request
        self.number = number
        self.asked = asked
        self.cancelled = False

    def done(self, outcome: Outcome) -> None:
        self._pipeline.went_on(self, outcome)
