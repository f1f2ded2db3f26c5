"""Requests in, replies out: inference at once, everything else as a small task of its own."""

from __future__ import annotations

import asyncio
import traceback

from serving.backends.onnxruntime.catalogue import Catalogue
from serving.backends.onnxruntime.faults import Fault, fault_of
from serving.backends.onnxruntime.http import Connection, Head, Reply, fault
from serving.backends.onnxruntime.operations import Operations
from serving.backends.onnxruntime.pipeline import Loaded
from serving.backends.onnxruntime.plan import Plan
from serving.backends.onnxruntime.routes import Route
from serving.backends.onnxruntime.settings import Limits
from serving.backends.onnxruntime.shared_memory import SharedMemory
from serving.batching import Outcome, Pending, RefusedError
from serving.compression import BodyTooLargeError, decompress
from serving.protocol import HEADER_LENGTH, Array, ProtocolError

RETRY = ("retry-after", "1")
Body = bytes | memoryview


class Application:
    """Attributes: ``draining`` refuses new inferences; ``in_flight`` is how many are left."""

    def __init__(self, catalogue: Catalogue, shared: SharedMemory, limits: Limits) -> None:
        self.catalogue = catalogue
        self.shared = shared
        self.limits = limits
        self.draining = False
        self.in_flight = 0
        self._operations = Operations(catalogue, shared, lambda: self.ready)
        self._tasks: set[asyncio.Task[None]] = set()
        self._unpacking = asyncio.Lock()

    @property
    def ready(self) -> bool:
        """Whether inferences are taken; the models of the start are loaded before anything."""
        return not self.draining

    def require_open(self) -> None:
        """Raises RefusedError once the server has been told to stop."""
        if self.draining:
            raise RefusedError("the server is shutting down")

    def begin(self, version: Loaded) -> None:
        """One more request is being answered."""
        version.statistics.in_flight += 1
        self.in_flight += 1

    def end(self, version: Loaded, outcome: str) -> None:
        """A request that had begun has been answered."""
        version.statistics.in_flight -= 1
        self.in_flight -= 1
        version.statistics.outcomes[outcome] += 1

    def failed(self, error: Exception, version: Loaded | None = None) -> Fault:
        """What ``error`` means; counted for the version that was named, printed if our own."""
        found = fault_of(error)
        if version is not None:
            version.statistics.outcomes[found.outcome] += 1
        if found.outcome == "server_fault":
            traceback.print_exception(error)
        return found

    def handle(self, connection: Connection, head: Head, body: Body) -> None:
        """Answer one request, now or later."""
        route: Route | Reply = head.route
        if isinstance(route, Reply):
            connection.send(route)
        elif route.endpoint.operation == "infer" and not head.encoding:
            self._infer(connection, head, route, body)
        else:
            task = asyncio.create_task(self._operate(connection, head, route, body))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def gone(self, connection: Connection) -> None:
        """The client left: what waits for it need not be computed."""
        request = connection.request
        if request is not None:
            request.version.cancel(request)

    def _infer(self, connection: Connection, head: Head, route: Route, body: Body) -> None:
        version = None
        try:
            self.require_open()
            version = self.catalogue.find(route.model, route.version)
            request = self._request(connection, version, head.header_length, body)
            version.submit(request)
        except Exception as error:
            connection.send(reply_to(self.failed(error, version)))
            return
        connection.request = request
        self.begin(version)

    def _request(
        self, connection: Connection, version: Loaded, told: int | None, body: Body
    ) -> HttpRequest:
        length = len(body) if told is None else told
        if length > len(body):
            raise ProtocolError(f"{HEADER_LENGTH} is {length} but the body has {len(body)} bytes")
        planner = version.planner
        plan = planner.plan(self._json_of(body, length), with_binary=told is not None)
        inputs = planner.inputs(plan, body, length, self.shared)
        return HttpRequest(self, connection, version, plan, inputs)

    async def _operate(self, connection: Connection, head: Head, route: Route, body: Body) -> None:
        """Answer what is not an inference, or one that came compressed."""
        version = None
        try:
            if route.endpoint.operation == "infer":
                version = self.catalogue.find(route.model, route.version)
            if head.encoding:
                body = await self._unpacked(body, head.encoding)
            if version is None:
                text = self._json_of(body, len(body))
                connection.send(await self._operations.answer(route, text))
            elif connection.busy:
                self._infer(connection, head, route, body)
        except Exception as error:
            connection.send(reply_to(self.failed(error, version)))

    async def _unpacked(self, body: Body, encoding: str) -> bytes:
        """On a thread, because a small body may hold a second's work, and one at a time."""
        async with self._unpacking:
            limit = self.limits.decompressed_bytes
            return await asyncio.to_thread(decompress, body, encoding, limit)

    def _json_of(self, body: Body, length: int) -> bytes:
        if length > self.limits.json_bytes:
            limit = self.limits.json_bytes
            raise BodyTooLargeError(f"{length} bytes of JSON came, the limit is {limit} bytes")
        return bytes(body[:length])


class HttpRequest(Pending):
    """One inference of one client."""

    __slots__ = ("_app", "_connection", "_plan", "version")

    def __init__(
        self,
        app: Application,
        connection: Connection,
        version: Loaded,
        plan: Plan,
        inputs: dict[str, Array],
    ) -> None:
        super().__init__(inputs, plan.rows, plan.shapes, plan.header.timeout_us * 1_000)
        self._app = app
        self._connection = connection
        self._plan = plan
        self.version = version

    def done(self, outcome: Outcome) -> None:
        app, version = self._app, self.version
        try:
            if isinstance(outcome, Exception):
                raise outcome
            lines, parts = version.planner.reply(self._plan, outcome, app.shared)
        except Exception as error:
            found = app.failed(error)
            app.end(version, found.outcome)
            self._connection.send(reply_to(found))
        else:
            app.end(version, "ok")
            self._connection.write(200, lines, parts)


def reply_to(found: Fault) -> Reply:
    """The HTTP reply that tells a fault."""
    return fault(found.status, found.text, *((RETRY,) if found.again else ()))
