"""One kept-alive HTTP/1.1 connection that sends prepared bytes and notes the times.

It works on whatever socket the process has: under Locust that is gevent's. Stock clients build
each request anew and time it in whole milliseconds; both would be measured as the server's.
"""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import httptools

_CHUNK_BYTES = 1 << 18


@dataclass(frozen=True)
class Reply:
    """Attributes: times are ``time.monotonic_ns``; header names are lower case."""

    status: int
    headers: Mapping[bytes, bytes]
    body: bytes
    first_byte_ns: int
    done_ns: int


class BrokenReplyError(ConnectionError):
    """The peer closed or sent something that is no HTTP."""


def prepare(url: str, path: str, headers: Mapping[str, str], body: bytes) -> bytes:
    """A whole POST request as bytes. It asks for no compression; a compressed reply is wrong."""
    lines = [
        f"POST {path} HTTP/1.1",
        f"Host: {urlsplit(url).netloc}",
        f"Content-Length: {len(body)}",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


class Connection:
    """Connects when first used, and again after it was closed. ``https`` addresses use TLS."""

    def __init__(self, url: str, *, timeout_s: float, ca_file: Path | None = None) -> None:
        """``ca_file`` holds the certificates to trust; the system's own when ``None``."""
        address = urlsplit(url)
        secure = address.scheme == "https"
        self._address = (address.hostname or "", address.port or (443 if secure else 80))
        self._timeout_s = timeout_s
        self._tls = ssl.create_default_context(cafile=ca_file) if secure else None
        self._socket: socket.socket | None = None

    def exchange(self, request: bytes) -> Reply:
        """Send ``request``, read the whole reply.

        Raises:
            TimeoutError: the whole exchange took longer than the limit.
            ConnectionError: refused, reset, closed early, or not HTTP.
        """
        deadline = time.monotonic() + self._timeout_s
        try:
            if self._socket is None:
                self._socket = self._connect()
            self._socket.settimeout(self._timeout_s)
            self._socket.sendall(request)
            return self._read(self._socket, deadline)
        except BaseException:
            self.close()
            raise

    def _connect(self) -> socket.socket:
        connected = socket.create_connection(self._address, timeout=self._timeout_s)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._tls is None:
            return connected
        return self._tls.wrap_socket(connected, server_hostname=self._address[0])

    def _read(self, connected: socket.socket, deadline: float) -> Reply:
        collector = _Collector()
        parser = httptools.HttpResponseParser(collector)
        first_byte_ns = 0
        while not collector.complete:
            data = connected.recv(_CHUNK_BYTES)
            now_ns = time.monotonic_ns()
            first_byte_ns = first_byte_ns or now_ns
            if not data:
                if not collector.ends_with_connection:
                    raise BrokenReplyError("the connection was closed before the reply was whole")
                break
            try:
                parser.feed_data(data)
            except httptools.HttpParserError as error:
                raise BrokenReplyError(f"the reply is not HTTP: {error}") from None
            if not collector.complete:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                connected.settimeout(left)
        # Not parser.should_keep_alive(): at the end of a message it has forgotten how that began.
        if collector.says_close or parser.get_http_version() != "1.1":
            self.close()
        body = collector.parts[0] if len(collector.parts) == 1 else b"".join(collector.parts)
        return Reply(parser.get_status_code(), collector.headers, body, first_byte_ns, now_ns)

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class _Collector:
    """What httptools calls back into; the method names are its own."""

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.parts: list[bytes] = []
        self.complete = False
        self._headers_complete = False

    @property
    def ends_with_connection(self) -> bool:
        """Whether the body has no stated length, so that the peer's closing ends it."""
        framed = self.headers.keys() & {b"content-length", b"transfer-encoding"}
        return self._headers_complete and not framed

    @property
    def says_close(self) -> bool:
        told = self.headers.get(b"connection", b"").lower()
        return b"close" in told or self.ends_with_connection

    def on_headers_complete(self) -> None:
        self._headers_complete = True

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers[name.lower()] = value

    def on_body(self, body: bytes) -> None:
        self.parts.append(body)

    def on_message_complete(self) -> None:
        self.complete = True
