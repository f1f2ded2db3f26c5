"""The listening socket, its connections, and what keeps slow clients from holding them."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from email.utils import formatdate

from serving.backends.onnxruntime.http.connection import Connection, Handler
from serving.backends.onnxruntime.http.head import HeadParser
from serving.backends.onnxruntime.settings import Limits

_SCRATCH_BYTES = 65_536
_SWEEP_S = 1.0


class HttpServer:
    """All connections of one address.

    Attributes:
        scratch: where they read what is not a body, one at a time.
        ahead_bytes: how much a client may send before its turn; a head that is not complete fits.
        date: the header line that every reply carries.
    """

    def __init__(self, handler: Handler, heads: HeadParser, limits: Limits) -> None:
        self.handler = handler
        self.heads = heads
        self.limits = limits
        self.loop = asyncio.get_running_loop()
        self.scratch = memoryview(bytearray(_SCRATCH_BYTES))
        self.ahead_bytes = max(_SCRATCH_BYTES, limits.head_bytes)
        self.date = b""
        self.draining = False
        self._connections: set[Connection] = set()
        self._listeners: list[asyncio.Server] = []
        self._sweeper: asyncio.TimerHandle | None = None

    async def listen(
        self, host: str, port: int, tls: ssl.SSLContext | None, *, reuse_port: bool = False
    ) -> None:
        """Answer at one more address; with ``reuse_port`` others may listen there too.

        Raises:
            OSError: the address cannot be had.
        """
        if self._sweeper is None:
            self._sweep()
        listener = await self.loop.create_server(
            lambda: Connection(self),
            host,
            port,
            ssl=tls,
            ssl_handshake_timeout=self.limits.stall_s if tls else None,
            backlog=1024,
            reuse_port=reuse_port or None,
        )
        self._listeners.append(listener)

    @property
    def owed(self) -> int:
        """Replies that are not yet made, or not quite sent."""
        return sum(connection.busy or connection.unsent for connection in self._connections)

    def admit(self, connection: Connection) -> bool:
        """Whether there is room for one more."""
        self._connections.add(connection)
        raw = connection.transport.get_extra_info("socket")
        if raw is not None and raw.family in (socket.AF_INET, socket.AF_INET6):
            raw.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return len(self._connections) <= self.limits.connections

    def forget(self, connection: Connection) -> None:
        self._connections.discard(connection)

    def drain(self) -> None:
        """Accept no more, close what is idle, and close the others after their reply."""
        self.draining = True
        for listener in self._listeners:
            listener.close()
        for connection in list(self._connections):
            if not connection.busy and not connection.partial:
                connection.transport.close()

    def close(self) -> None:
        """Cut what is left."""
        if self._sweeper:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.transport.abort()

    def _sweep(self) -> None:
        """Once a second: the date, and connections on which nothing has moved for too long."""
        self.date = f"date: {formatdate(time.time(), usegmt=True)}\r\n".encode()
        for connection in list(self._connections):
            connection.tick()
            limit_s = self.limits.stall_s if connection.partial else self.limits.idle_s
            if connection.quiet_s > limit_s and not connection.busy:
                connection.transport.abort()
        self._sweeper = self.loop.call_later(_SWEEP_S, self._sweep)
