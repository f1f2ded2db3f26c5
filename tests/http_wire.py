"""A ``Connection`` without a socket: it is fed what a client sends, and its writes are recorded."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass, field
from typing import Any

from serving.backends.onnxruntime.http import Connection, Head, HeadParser, HttpServer, Reply, fault
from serving.backends.onnxruntime.settings import Limits


class FakeTransport:
    """Attributes: ``high_water`` is how many bytes the client may leave unread."""

    def __init__(self, high_water: int = 1 << 30) -> None:
        self.high_water = high_water
        self.protocol: Connection | None = None
        self.sent = b""
        self.unread = 0
        self.reading = True
        self.closing = False
        self.ended = False
        self.aborted = False

    def write(self, data: bytes) -> None:
        assert not self.closing
        assert not self.ended
        self.sent += data
        self.unread += len(data)
        if self.unread > self.high_water and self.protocol:
            self.protocol.pause_writing()

    def writelines(self, parts: Iterable[bytes]) -> None:
        self.write(b"".join(parts))

    def client_reads(self) -> None:
        """Everything that has been sent."""
        paused, self.unread = self.unread > self.high_water, 0
        if paused and self.protocol:
            self.protocol.resume_writing()

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.ended = True

    def get_write_buffer_size(self) -> int:
        return self.unread if self.unread > self.high_water else 0

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True
        self.reading = False

    def abort(self) -> None:
        self.aborted = True
        self.close()

    def pause_reading(self) -> None:
        self.reading = False

    def resume_reading(self) -> None:
        self.reading = not self.closing

    def get_extra_info(self, _: str) -> None:
        return None


@dataclass
class EchoHandler:
    """Answers with the method, the path and the body; at once, or in the loop's next turn.

    Attributes:
        hold: answers nothing, so that the test does.
    """

    later: bool = False
    hold: bool = False
    bodies: list[bytes | memoryview] = field(default_factory=list)
    gone_clients: list[Connection] = field(default_factory=list)

    def handle(self, connection: Connection, head: Head, body: bytes | memoryview) -> None:
        self.bodies.append(body)
        connection.request = self
        if self.hold:
            return
        if isinstance(head.route, Reply):
            answer = head.route
        else:
            answer = Reply(200, f"{head.method} {head.route} ".encode() + bytes(body))
        if self.later:
            asyncio.get_running_loop().call_soon(connection.send, answer)
        else:
            connection.send(answer)

    def gone(self, connection: Connection) -> None:
        self.gone_clients.append(connection)


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def route(_: str, path: Iterable[str], authorized: bool) -> str | Reply:
    """The path; what begins with ``no`` is not there."""
    target = "/".join(path)
    if not authorized:
        return fault(401, "who are you?")
    return fault(404, target) if target.startswith("/no") else target


class Wire:
    """One client of one server."""

    def __init__(
        self,
        handler: EchoHandler | None = None,
        limits: Limits | None = None,
        high_water: int = 1 << 30,
        token: str = "",
    ) -> None:
        limits = limits or Limits()
        self.handler = handler or EchoHandler()
        self.server = HttpServer(self.handler, HeadParser(route, limits.headers, token), limits)
        self.transport = FakeTransport(high_water)
        self.connection = self.join(self.transport)

    def join(self, transport: FakeTransport) -> Connection:
        """One more client."""
        connection = Connection(self.server)
        transport.protocol = connection
        connection.connection_made(transport)  # type: ignore[arg-type]
        return connection

    def lose(self) -> None:
        self.transport.close()
        self.connection.connection_lost(None)

    async def feed(self, *pieces: bytes) -> int:
        """Let the pieces arrive one after the other; returns the bytes that were not taken."""
        for index, piece in enumerate(pieces):
            data = piece
            while data:
                if not self.transport.reading:
                    await self.settle()
                if not self.transport.reading:
                    return sum(map(len, pieces[index + 1 :]), len(data))
                buffer = self.connection.get_buffer(-1)
                count = min(len(buffer), len(data))
                buffer[:count] = data[:count]
                self.connection.buffer_updated(count)
                data = data[count:]
        await self.settle()
        return 0

    async def settle(self) -> None:
        """Let the loop turn until nothing more comes of it."""
        before = None
        while before != (before := (len(self.transport.sent), len(self.handler.bodies))):
            for _ in range(3):
                await asyncio.sleep(0)

    def answers(self, *methods: str) -> list[Answer]:
        """The replies so far, to requests by ``methods`` (GET where none is named)."""
        return list(split_replies(self.transport.sent, methods))


def split_replies(data: bytes, methods: Iterable[str] = ()) -> Iterable[Answer]:
    """Taken apart by their content lengths; interim replies stand for themselves."""
    waiting = iter(methods)
    while data:
        head, end, data = data.partition(b"\r\n\r\n")
        assert end, head
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(first.split(" ")[1])
        headers = dict(line.split(": ", 1) for line in lines)
        empty = status == 100 or next(waiting, "GET") == "HEAD"
        length = 0 if empty else int(headers["content-length"])
        assert len(data) >= length
        yield Answer(status, headers, data[:length])
        data = data[length:]


def run(scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(scene())


def conversation(*pieces: bytes, limits: Limits | None = None, token: str = "") -> list[Answer]:
    """What is answered to the pieces, which arrive one after the other."""
    found: list[Answer] = []

    async def scene() -> None:
        wire = Wire(limits=limits, token=token)
        await wire.feed(*pieces)
        found.extend(wire.answers())

    run(scene)
    return found


def bodies(answers: list[Answer]) -> list[bytes]:
    """Of answers that must all be right."""
    assert [answer.status for answer in answers] == [200] * len(answers)
    return [answer.body for answer in answers]


def request(
    method: str = "POST", path: str = "/a", body: bytes = b"", *fields: str, version: str = "1.1"
) -> bytes:
    """With ``Host``, and with ``Content-Length`` where there is a body."""
    lines = [f"{method} {path} HTTP/{version}", "Host: h", *fields]
    if body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


def chunked(path: str, chunks: Iterable[bytes], *fields: str, trailer: bytes = b"") -> bytes:
    head = request("POST", path, b"", "Transfer-Encoding: chunked", *fields)
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + body + b"0\r\n" + trailer + b"\r\n"


GET = request("GET", "/a")
POST = request("POST", "/b", b"body of b")
CHUNKED = chunked("/c", [b"body ", b"of c"], trailer=b"X-Sum: 1\r\n")
