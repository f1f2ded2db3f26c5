"""One client's connection: bytes to requests, replies to bytes, one request at a time.

A body of stated length is read by the kernel straight into the memory that the session reads, with
its tensors aligned, so that the payload is not copied on the way.
"""

from __future__ import annotations

import asyncio
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from serving.backends.onnxruntime.http.chunks import Chunks
from serving.backends.onnxruntime.http.head import Head, HeadError
from serving.backends.onnxruntime.http.reply import Reply, fault, head_lines, status_line

if TYPE_CHECKING:
    from serving.backends.onnxruntime.http.server import HttpServer

_END = b"\r\n\r\n"
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_GOODBYE = b"connection: close\r\n\r\n"
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
    ENDED = auto()
    """Goodbye has been said; what the client still sends is read and dropped."""


class Connection(asyncio.BufferedProtocol):
    """A client that ends its side, even if only that for sending, has gone.

    Attributes:
        request: the handler's own note of what it works on for this client.
        quiet_s: seconds since something moved.
    """

    __slots__ = (
        "_body", "_chunks", "_have", "_head", "_need", "_paused", "_rest", "_server", "_state",
        "_unsent_bytes", "quiet_s", "request", "transport",
    )  # fmt: skip

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._state = _State.HEAD
        self._rest = b""
        self._paused = False
        self._head: Head | None = None
        self._body: memoryview | None = None
        self._have = self._need = 0
        self._chunks: Chunks | None = None
        self._unsent_bytes = 0
        self.quiet_s = 0
        self.request: Any = None
        self.transport: asyncio.Transport

    @property
    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self._state is _State.BUSY

    @property
    def unsent(self) -> bool:
        """Whether a part of a reply is still here."""
        return self.transport.get_write_buffer_size() > 0

    @property
    def partial(self) -> bool:
        """Whether a request has begun to arrive and is not complete, or a reply is stuck."""
        arriving = self._state in (_State.BODY, _State.CHUNKS, _State.ENDED)
        return arriving or bool(self._rest) or self.unsent

    def tick(self) -> None:
        """A second has passed."""
        unsent_bytes = self.transport.get_write_buffer_size()
        self.quiet_s = 0 if unsent_bytes < self._unsent_bytes else self.quiet_s + 1
        self._unsent_bytes = unsent_bytes

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport  # type: ignore[assignment]
        if not self._server.admit(self):
            self._refuse(fault(503, "too many connections", ("retry-after", "1")))
            self.transport.close()

    def connection_lost(self, _: Exception | None) -> None:
        self._server.forget(self)
        if self._state is _State.BUSY:
            self._server.handler.gone(self)
        self._end()

    def pause_writing(self) -> None:
        self._paused = True
        self._flow()

    def resume_writing(self) -> None:
        self._paused = False
        self._flow()
        self._server.loop.call_soon(self._next)

    def get_buffer(self, _: int) -> memoryview:
        if self._state is _State.BODY:
            assert self._body is not None
            return self._body[self._have :]
        return self._server.scratch

    def buffer_updated(self, count: int) -> None:
        if self._state is _State.HEAD and not self._rest:
            self.quiet_s = 0
            self._read(self._server.scratch, count)
        elif self._state is _State.BODY:
            self.quiet_s = 0
            self._have += count
            if self._have == self._need:
                body, self._body = self._body, None
                assert body is not None
                self._start(body)
        elif self._state is _State.CHUNKS:
            self.quiet_s = 0
            self._feed(bytes(self._server.scratch[:count]))
        elif self._state is not _State.ENDED:
            self._keep(bytes(self._server.scratch[:count]))

    def _keep(self, data: bytes) -> None:
        """More of an unfinished head, or of requests before their turn."""
        self._rest += data
        self._next()
        self._flow()

    def _next(self) -> None:
        """Turn to what came before its turn."""
        if self._state is _State.HEAD and self._rest and not self._paused:
            rest, self._rest = self._rest, b""
            self._read(memoryview(rest), len(rest))
            self._flow()

    def _flow(self) -> None:
        """Read on, unless the client asks faster than it is answered, or than it reads answers."""
        if self._paused or len(self._rest) > self._server.ahead_bytes:
            self.transport.pause_reading()
        else:
            self.transport.resume_reading()

    def _read(self, data: memoryview, count: int) -> None:
        """``data`` starts with a head."""
        limits = self._server.limits
        end = bytes(data[: min(count, limits.head_bytes)]).find(_END)
        if end < 0:
            self._wait_for_head(bytes(data[:count]))
            return
        end += len(_END)
        try:
            head = self._server.heads.parse(bytes(data[:end]))
        except HeadError as error:
            self._refuse(fault(error.status, str(error)))
            return
        self._head = head
        length = head.length
        if length is None or length > limits.body_bytes or end + length > count:
            self._wait_for_body(head, data[end:count])
            return
        after = end + length
        if after < count:
            self._rest = bytes(data[after:count])
        self._start(bytes(data[end:after]))

    def _wait_for_head(self, begun: bytes) -> None:
        """The rest must come soon, in however many pieces: they are no sign of life."""
        limit = self._server.limits.head_bytes
        if len(begun) >= limit:
            self._refuse(fault(431, f"the head is larger than the limit of {limit} bytes"))
        else:
            self._rest = begun

    def _wait_for_body(self, head: Head, begun: memoryview) -> None:
        limit, length = self._server.limits.body_bytes, head.length
        small = length is not None and length <= len(self._server.scratch)
        if isinstance(head.route, Reply) and (head.expects or not small):
            # Nobody has a use for this body.
            self._refuse(head.route, head)
        elif length is not None and length > limit:
            self._refuse(fault(413, f"the body is larger than the limit of {limit} bytes"), head)
        else:
            if head.expects and not begun:
                self.transport.write(_CONTINUE)
            self._begin_body(head, begun)

    def _begin_body(self, head: Head, begun: memoryview) -> None:
        limits = self._server.limits
        if head.length is None:
            self._state = _State.CHUNKS
            self._chunks = Chunks(limits.body_bytes, limits.headers)
            self._feed(bytes(begun))
        else:
            self._state = _State.BODY
            self._need, self._have = head.length, len(begun)
            self._body = _aligned(head.length, head.header_length)
            self._body[: self._have] = begun

    def _feed(self, data: bytes) -> None:
        assert self._chunks is not None
        try:
            rest = self._chunks.feed(data)
        except HeadError as error:
            self._refuse(fault(error.status, str(error)), self._head)
            return
        if rest is not None:
            body, self._chunks = self._chunks.body, None
            self._rest = rest
            self._start(memoryview(body))

    def _start(self, body: Body) -> None:
        head = self._head
        assert head is not None
        self._state = _State.BUSY
        self._server.handler.handle(self, head, body)

    def _refuse(self, reply: Reply, head: Head | None = None) -> None:
        """Answer before the request is complete, end this side, and read on for a while.

        A client that is cut off while it sends sees a broken connection in place of the reason.
        """
        self.transport.write(
            b"".join(
                [
                    *(status_line(reply.status), self._server.date),
                    *(head.echo if head else b"", head_lines(reply), _GOODBYE),
                    b"" if head and head.method == "HEAD" else reply.body,
                ]
            )
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.quiet_s = 0
        self._end()

    def _end(self) -> None:
        self._state, self._rest = _State.ENDED, b""
        self._chunks = self._body = self.request = None

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
        self.quiet_s = 0
        closing = not head.keep_alive or self._server.draining
        start = [status_line(status), self._server.date, head.echo, lines]
        start.append(_GOODBYE if closing else head.kept)
        if sum(map(len, parts)) <= _JOINED_BYTES:
            self.transport.write(b"".join(start + parts))
        else:
            self.transport.writelines([b"".join(start), *parts])
        if closing:
            self._end()
            self.transport.close()
            return
        self._state = _State.HEAD
        if self._rest:
            self._server.loop.call_soon(self._next)


def _aligned(length: int, header_length: int | None) -> memoryview:
    """Memory for a body in which the binary part, if any, starts at an aligned address."""
    base = np.empty(length + _ALIGNMENT, np.uint8)
    start = -(base.ctypes.data + (header_length or 0)) % _ALIGNMENT
    return base[start : start + length].data
