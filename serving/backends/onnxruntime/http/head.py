"""The head of a request: read by llhttp, checked, and remembered."""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httptools

from serving.protocol import HEADER_LENGTH, ProtocolError, parse_header_length

ECHOED = ("traceparent", "x-request-id")
"""Headers that come back as they came, so that a client finds its request again."""
_ECHOED = tuple(name.encode() for name in ECHOED)
_HEADER_LENGTH = HEADER_LENGTH.lower().encode()
_READ = frozenset(
    {
        b"authorization",
        b"content-encoding",
        b"content-length",
        b"expect",
        b"host",
        b"transfer-encoding",
        _HEADER_LENGTH,
        *_ECHOED,
    }
)
_REQUEST_LINE = re.compile(rb"(?:\r\n)?([A-Z-]+) ([!-~]+) HTTP/([0-9.]+)\r\n")
_REMEMBERED = 512

Router = Callable[[str, Sequence[str], bool], Any]
"""From a method, the parts of a path, and whether the token came with it."""


class HeadError(Exception):
    """A request that cannot be served; the connection ends after the reply."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Head:
    """What a request's head says.

    Attributes:
        route: what the router made of it.
        length: bytes of the body; ``None`` when it comes in chunks.
        header_length: bytes of the body's JSON part; ``None`` when it is all JSON.
        encoding: of the body, such as ``gzip``; empty when it is plain.
        expects: whether the client waits for a go-ahead before it sends the body.
        echo: header lines to be sent back as they came: trace and request ids.
        kept: the end of the reply's head when the connection is kept.
    """

    method: str
    route: Any
    length: int | None
    header_length: int | None
    encoding: str
    keep_alive: bool
    expects: bool
    echo: bytes
    kept: bytes


@dataclass
class _Fields:
    """Collects what the parser calls out."""

    count_limit: int
    read: dict[bytes, bytes] = field(default_factory=dict)
    count: int = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        self.count += 1
        if self.count > self.count_limit:
            raise HeadError(431, f"more than {self.count_limit} header fields")
        name = name.lower()
        if name in _READ:
            # Of two that differ, another server on the way may have taken the other.
            if name in self.read:
                raise HeadError(400, f"more than one {name.decode()} header field")
            self.read[name] = value


class HeadParser:
    """Turns the bytes of a head into a ``Head``.

    Args:
        count_limit: header fields that a request may have.
        token: what ``Authorization: Bearer`` must say; empty when nothing is asked.
    """

    def __init__(self, router: Router, count_limit: int, token: str) -> None:
        self._router = router
        self._count_limit = count_limit
        self._token = token
        self._known: dict[bytes, Head] = {}

    def parse(self, raw: bytes) -> Head:
        """``raw`` ends with the empty line.

        Raises:
            HeadError: it is no HTTP, or asks for what is not served.
        """
        head = self._known.get(raw)
        if head is None:
            head = self._parse(raw)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[raw] = head
        return head

    def _parse(self, raw: bytes) -> Head:
        method, path, version = _request_line(raw)
        read, keep_alive = self._fields(raw)
        if version == b"1.1" and b"host" not in read:
            raise HeadError(400, "an HTTP/1.1 request needs a Host header field")
        authorized = not self._token or bears(read.get(b"authorization", b""), self._token)
        told = version == b"1.0" and keep_alive
        return Head(
            method=method,
            route=self._router(method, path, authorized),
            length=_length(read, version),
            header_length=_header_length(read),
            encoding=_encoding(read),
            keep_alive=keep_alive,
            expects=version == b"1.1" and read.get(b"expect", b"").lower() == b"100-continue",
            echo=b"".join(b"%s: %s\r\n" % (name, read[name]) for name in _ECHOED if name in read),
            kept=b"connection: keep-alive\r\n\r\n" if told else b"\r\n",
        )

    def _fields(self, raw: bytes) -> tuple[Mapping[bytes, bytes], bool]:
        """Those that matter, and whether the connection is to be kept."""
        fields = _Fields(self._count_limit)
        parser = httptools.HttpRequestParser(fields)
        keep_alive = False
        try:
            parser.feed_data(raw[:-1])
            # Once a request without a body is complete, the parser has forgotten it.
            keep_alive = parser.should_keep_alive()
            parser.feed_data(raw[-1:])
        except httptools.HttpParserUpgrade:
            # An offer of another protocol; it may be left unanswered.
            pass
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, HeadError):
                raise error.__context__ from None
            raise HeadError(400, f"this is no HTTP request: {error}") from None
        return fields.read, keep_alive


def bears(authorization: bytes, token: str) -> bool:
    """Whether the value of an ``Authorization`` field is the bearer ``token``."""
    scheme, _, told = authorization.partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(told.strip(), token.encode())


def _request_line(raw: bytes) -> tuple[str, Sequence[str], bytes]:
    """Method, parts of the path, version."""
    line = _REQUEST_LINE.match(raw)
    if line is None:
        raise HeadError(
            400, "this is no HTTP request: it does not begin with METHOD /path HTTP/1.1"
        )
    method, target, version = line.groups()
    if version not in (b"1.0", b"1.1"):
        raise HeadError(505, f"HTTP/1.1 and HTTP/1.0 are served, not {version.decode()}")
    try:
        path = httptools.parse_url(target).path or b"/"
        # Taken apart before it is decoded: an encoded slash is part of a name.
        parts = tuple(unquote(part, errors="strict") for part in path.decode("ascii").split("/"))
    except (httptools.HttpParserInvalidURLError, UnicodeDecodeError):
        raise HeadError(400, "the path is not a valid URL") from None
    return method.decode(), parts, version


def _length(read: Mapping[bytes, bytes], version: bytes) -> int | None:
    coding = read.get(b"transfer-encoding")
    if coding is None:
        return int(read.get(b"content-length", b"0"))
    if version == b"1.0":
        raise HeadError(400, "HTTP/1.0 has no Transfer-Encoding")
    if coding.lower() != b"chunked":
        raise HeadError(501, f"transfer coding {coding.decode('latin-1')!r} is not supported")
    return None


def _encoding(read: Mapping[bytes, bytes]) -> str:
    coding = (_text(read, b"content-encoding") or "").lower()
    return "" if coding == "identity" else coding


def _header_length(read: Mapping[bytes, bytes]) -> int | None:
    try:
        return parse_header_length(_text(read, _HEADER_LENGTH))
    except ProtocolError as error:
        raise HeadError(400, str(error)) from None


def _text(read: Mapping[bytes, bytes], name: bytes) -> str | None:
    value = read.get(name)
    return None if value is None else value.decode("latin-1")
