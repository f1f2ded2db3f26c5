"""One client's connection: bytes to requests, replies to bytes, one request at a time.

A body of stated length is read by the kernel straight into the memory that the session reads, with
its tensors aligned, so that the payload is not copied on the way.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

import httptools
import numpy as np

from serving.backends.onnxruntime.http.head import Head, HeadError
from serving.backends.onnxruntime.http.reply import Reply, fault, head_lines, status_line

if TYPE_CHECKING:
    from serving.backends.onnxruntime.http.server import HttpServer

_END = b"\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_ALIGNMENT = 64
_JOINED_BYTES = 65_536
"""Larger replies are written in parts rather than copied into one piece."""

Body = bytes | memoryview


class Handler(Protocol):
    """What answers requests: it calls ``connection.send`` or ``connection.write`` once for each."""

    def handle(self, connection: Connection, head: Head, body: Body) -> None: ...

    def gone(self, connection: Connection) -> None:
        """The client went away before its request was answered."""
        ...


class _State(Enum):
    HEAD = auto()
    BODY = auto()
    CHUNKS = auto()
    BUSY = auto()
    REFUSED = auto()
    """The reply is out and says goodbye; what the client still sends is read and dropped."""


class Connection(asyncio.BufferedProtocol):
    """Attributes: ``request`` is the handler's own note of what it works on for this client."""

    __slots__ = (
        "_body", "_chunks", "_have", "_head", "_need", "_paused", "_rest", "_server", "_state",
        "quiet", "request", "transport",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._state = _State.HEAD
        self._rest = b""
        self._paused = False
        self._head: Head | None = None
        self._body: memoryview | None = None
        self._have = self._need = 0
        self._chunks: _Chunks | None = None
        self.quiet = 0
        self.request: Any = None
        self.transport: asyncio.Transport

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._state is _State.BUSY

    @property
    def partial(self) -> bool:
        """Whether a request has begun to arrive and is not complete, or a reply is stuck."""
        arriving = self._state in (_State.BODY, _State.CHUNKS, _State.REFUSED)
        return arriving or bool(self._rest) or self._paused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        if not self._server.admit(self):
            self._refuse(503, "too many connections", ("retry-after", "1"))
            self.transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._server.forget(self)
        if self._state is _State.BUSY:
            self._server.handler.gone(self)

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        if self._state is _State.HEAD and self._rest:
            self._next()

    def get_buffer(self, _: int) -> memoryview:
        if self._state is _State.BODY:
            assert self._body is not None
            return self._body[self._have :]
        return self._server.scratch

    def buffer_updated(self, count: int) -> None:
        if self._state is _State.REFUSED:
            return
        self.quiet = 0
        if self._state is _State.BODY:
            self._have += count
            if self._have == self._need:
                body, self._body = self._body, None
                assert body is not None
                self._start(body)
        elif self._state is _State.HEAD and not self._rest:
            self._read(self._server.scratch, count)
        elif self._state is _State.CHUNKS:
            self._feed(bytes(self._server.scratch[:count]))
        else:
            self._keep(bytes(self._server.scratch[:count]))

    def _keep(self, data: bytes) -> None:
        """More of an unfinished head, or of the request after the one that is being answered."""
        self._rest += data
        if self._state is _State.HEAD:
            self._next()
        elif len(self._rest) > len(self._server.scratch):
            self.transport.pause_reading()

    def _next(self) -> None:
        """Go on with what came before its turn."""
        rest, self._rest = self._rest, b""
        self._read(memoryview(rest), len(rest))

    def _read(self, data: memoryview, count: int) -> None:
        """``data`` starts with a head."""
        limit = self._server.limits.head_bytes
        end = bytes(data[: min(count, limit)]).find(_END)
        if end < 0:
            if count >= limit:
                self._refuse(431, f"the head is larger than the limit of {limit} bytes")
            else:
                self._rest = bytes(data[:count])
            return
        end += len(_END)
        raw = bytes(data[:end])
        try:
            head = self._server.heads.parse(raw)
        except HeadError as error:
            self._refuse(error.status, str(error))
            return
        self._head = head
        if head.length == 0:
            self._rest = bytes(data[end:count])
            self._start(b"")
            return
        limit = self._server.limits.body_bytes
        if head.length is not None and head.length > limit:
            self._refuse(413, f"the body is larger than the limit of {limit} bytes")
            return
        if head.expects and end == count:
            self.transport.write(_CONTINUE)
        if head.length is None:
            self._state, self._chunks = _State.CHUNKS, _Chunks(raw, limit)
            self._feed(bytes(data[end:count]))
        elif end + head.length <= count:
            self._rest = bytes(data[end + head.length : count])
            self._start(bytes(data[end : end + head.length]))
        else:
            self._state = _State.BODY
            self._need, self._have = head.length, count - end
            self._body = _aligned(head)
            self._body[: self._have] = data[end:count]

    def _feed(self, data: bytes) -> None:
        assert self._chunks is not None
        try:
            self._chunks.feed(data)
        except HeadError as error:
            self._refuse(error.status, str(error))
            return
        if self._chunks.complete:
            body, self._chunks = b"".join(self._chunks.parts), None
            self._start(body)

    def _start(self, body: Body) -> None:
        head = self._head
        assert head is not None
        self._state = _State.BUSY
        self._server.handler.handle(self, head, body)

    def _refuse(self, status: int, text: str, *headers: tuple[str, str]) -> None:
        """Answer before the request is complete, then read on for a while.

        A client that is cut off while it sends sees a broken connection in place of the reason.
        """
        reply = fault(status, text, *headers, ("connection", "close"))
        self.transport.write(
            b"".join([status_line(status), self._server.date, head_lines(reply), b"\r\n"])
            + reply.body
        )
        self._state, self._rest, self._chunks, self._body = _State.REFUSED, b"", None, None

    def send(self, reply: Reply) -> None:
        """Answer the request in hand."""
        assert self._head is not None
        body = b"" if self._head.method == "HEAD" else reply.body
        self.write(reply.status, head_lines(reply), [body])

    def write(self, status: int, lines: bytes, parts: list[Any]) -> None:
        """Answer the request in hand with header ``lines`` and the parts of a body."""
        head = self._head
        if head is None or self._state is not _State.BUSY or self.transport.is_closing():
            return
        self.request = None
        closing = not head.keep_alive or self._server.draining
        start = [status_line(status), self._server.date, head.echo, lines]
        start.append(b"connection: close\r\n\r\n" if closing else b"\r\n")
        if sum(map(len, parts)) <= _JOINED_BYTES:
            self.transport.write(b"".join(start + parts))
        else:
            self.transport.writelines([b"".join(start), *parts])
        if closing:
            self._state = _State.REFUSED
            self.transport.close()
            return
        self._state = _State.HEAD
        if self._rest and not self._paused:
            self.transport.resume_reading()
            self._server.loop.call_soon(self._next_if_waiting)

    def _next_if_waiting(self) -> None:
        if self._state is _State.HEAD and self._rest:
            self._next()


class _Chunks:
    """A body that comes in chunks; llhttp takes them apart."""

    def __init__(self, head: bytes, limit_bytes: int) -> None:
        self._left = self._limit = limit_bytes
        self.parts: list[bytes] = []
        self.complete = False
        self._parser = httptools.HttpRequestParser(self)
        self._parser.feed_data(head)

    def feed(self, data: bytes) -> None:
        """Raises HeadError when they are no chunks, or too many."""
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise HeadError(400, f"the chunks of the body cannot be read: {error}") from None
        if self._left < 0:
            raise HeadError(413, f"the body is larger than the limit of {self._limit} bytes")

    def on_body(self, part: bytes) -> None:
        self._left -= len(part)
        if self._left >= 0:
            self.parts.append(part)

    def on_message_complete(self) -> None:
        self.complete = True


def _aligned(head: Head) -> memoryview:
    """Memory for the body in which the binary part, if any, starts at an aligned address."""
    length, json_part = head.length or 0, head.header_length or 0
    base = np.empty(length + _ALIGNMENT, np.uint8)
    start = -(base.ctypes.data + json_part) % _ALIGNMENT
    return base[start : start + length].data
