"""Measures each HTTP exchange of the application: what came, what was answered, how long it took.

Plain ASGI, because Starlette's ``BaseHTTPMiddleware`` costs a task and a stream for each request.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

INFERENCE = "infersweep.inference"
"""Where the application leaves its ``Inference`` in the scope."""
UNMATCHED = "unmatched"
CLIENT_GONE = 499
"""nginx's status for a client that went away before its answer."""


class Inference:
    """One inference whose body has arrived; times by the monotonic clock, 0 for what never was.

    Attributes:
        queued_ns: from when it waited for the inference thread.
        prepared_ns: when the front half of a pipeline was done.
        computed_ns: when the engine was done.
    """

    rows: int = 0
    queued_ns: int = 0
    started_ns: int = 0
    prepared_ns: int = 0
    computed_ns: int = 0


Exchange = tuple[str, str, int, int, int, Inference | None]
"""Method, route template, status, when it began and was done, and what inference it was. Plain,
because one is made for every request."""


class Metering:
    """Gives each exchange to ``record`` when the last of its answer has been handed over."""

    def __init__(self, app: ASGIApp, record: Callable[[Exchange], None]) -> None:
        self._app = app
        self._record = record

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
            done_ns = time.monotonic_ns()
            route = scope["route"].path if "route" in scope else UNMATCHED
            told = scope.get(INFERENCE)
            self._record((scope["method"], route, status, began_ns, done_ns, told))


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
