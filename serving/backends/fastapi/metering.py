"""Measures each HTTP exchange of the application: what came, what was answered, how long it took.

Plain ASGI, because Starlette's ``BaseHTTPMiddleware`` costs a task and a stream for each request.
"""

from __future__ import annotations

import struct
import time
from collections.abc import Awaitable
from typing import NamedTuple

from starlette.types import ASGIApp, Message, Receive, Scope, Send

INFERENCE = "infersweep.inference"
"""Where the application leaves its ``Inference`` in the scope."""
UNMATCHED = "unmatched"
OTHER = "other"
CLIENT_GONE = 499
"""nginx's status for a client that went away before its answer."""
_METHODS = frozenset(("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"))


class Inference:
    """One inference whose body has arrived; times by the monotonic clock, 0 for what never was.

    Attributes:
        queued_ns: from when it waited for the inference thread.
        computed_ns: when the engine was done.
    """

    rows: int = 0
    queued_ns: int = 0
    started_ns: int = 0
    computed_ns: int = 0


_NONE = Inference()
_NONE.rows = -1


class Series(NamedTuple):
    """``route`` is the template that the path matched."""

    method: str
    route: str
    status: int


class Ledger:
    """Exchanges since they were last taken, as packed numbers: the cheapest that Python can keep.

    Attributes:
        series: every one so far; an exchange names its own by the place in this list.
    """

    COLUMNS = ("series", "began_ns", "done_ns", "rows", "queued_ns", "started_ns", "computed_ns")
    _pack = struct.Struct(f"{len(COLUMNS)}q").pack

    def __init__(self) -> None:
        self.series: list[Series] = []
        self._places: dict[tuple[str, str, int], int] = {}
        self._lines = bytearray()

    def add(self, scope: Scope, status: int, began_ns: int) -> None:
        """An exchange that ends now."""
        done_ns = time.monotonic_ns()
        route = scope.get("route")
        key = (scope["method"], UNMATCHED if route is None else route.path, status)
        place = self._places.get(key)
        if place is None:
            place = self._place(*key)
        told = scope.get(INFERENCE, _NONE)
        self._lines += self._pack(
            place, began_ns, done_ns, told.rows, told.queued_ns, told.started_ns, told.computed_ns
        )

    def take(self) -> bytearray:
        """64-bit integers, line after line of ``COLUMNS``; ``rows`` is -1 for no inference."""
        taken, self._lines = self._lines, bytearray()
        return taken

    def _place(self, method: str, route: str, status: int) -> int:
        """Of a series that is new, or whose method is one of any number that clients may invent."""
        series = Series(method if method in _METHODS else OTHER, route, status)
        if series not in self._places:
            self._places[series] = len(self.series)
            self.series.append(series)
        return self._places[series]


class Metering:
    """Adds each exchange to ``ledger`` when the last of its answer has been handed over."""

    def __init__(self, app: ASGIApp, ledger: Ledger) -> None:
        self._app = app
        self._ledger = ledger

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began_ns = time.monotonic_ns()
        status = 500

        def answered(message: Message) -> Awaitable[None]:
            nonlocal status
            if message["type"] == "http.response.start":
                # Only an inference takes so long that its client may leave.
                gone = INFERENCE in scope and _is_gone(receive)
                status = CLIENT_GONE if gone else message["status"]
            return send(message)

        try:
            await self._app(scope, receive, answered)
        except BaseException:
            status = 500
            raise
        finally:
            self._ledger.add(scope, status, began_ns)


def _is_gone(receive: Receive) -> bool:
    """Whether the client has left, once its whole request has been received.

    uvicorn's connection knows. Elsewhere one step of the coroutine tells, since nothing else can be
    there to receive. Starlette's ``is_disconnected`` takes ten times as long as that step.
    """
    known = getattr(getattr(receive, "__self__", None), "disconnected", None)
    if known is not None:
        return bool(known)
    waiting = receive().__await__()
    try:
        next(waiting)
    except StopIteration as end:
        return bool(end.value["type"] == "http.disconnect")
    waiting.close()
    return False
