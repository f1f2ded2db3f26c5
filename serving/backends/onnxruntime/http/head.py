"""The head of a request: read by llhttp, checked, and remembered."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

import httptools

from serving.protocol import HEADER_LENGTH, ProtocolError, parse_header_length

ECHOED = ("traceparent", "x-request-id")
"""Headers that come back as they came, so that a client finds its request again."""
_HEADER_LENGTH = HEADER_LENGTH.lower().encode()
_REMEMBERED = 512


class HeadError(Exception):
    """A head that cannot be served; the connection ends after the reply."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Head:
    """What a request's head says.

    Attributes:
        route: what the router made of method and path.
        length: bytes of the body; ``None`` when it comes in chunks.
        header_length: bytes of the body's JSON part; ``None`` when it is all JSON.
        encoding: of the body, such as ``gzip``; empty when it is plain.
        expects: whether the client waits for a go-ahead before it sends the body.
        echo: header lines to be sent back as they came: trace and request ids.
    """

    method: str
    path: str
    route: Any
    length: int | None
    header_length: int | None
    encoding: str
    keep_alive: bool
    expects: bool
    authorized: bool
    echo: bytes


@dataclass
class _Fields:
    """Collects what the parser calls out."""

    count_limit: int
    url: bytes = b""
    headers: dict[bytes, bytes] = field(default_factory=dict)
    count: int = 0

    def on_url(self, url: bytes) -> None:
        self.url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self.count += 1
        if self.count > self.count_limit:
            raise HeadError(431, f"more than {self.count_limit} header fields")
        self.headers[name.lower()] = value


class HeadParser:
    """Turns the bytes of a head into a ``Head``.

    Args:
        router: what to make of a method and a path.
        count_limit: header fields that a request may have.
        token: what ``Authorization: Bearer`` must say; empty when nothing is asked.
    """

    def __init__(self, router: Callable[[str, str], Any], count_limit: int, token: str) -> None:
        self._router = router
        self._count_limit = count_limit
        self._credentials = f"Bearer {token}".encode() if token else b""
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
        fields = _Fields(self._count_limit)
        parser = httptools.HttpRequestParser(fields)
        try:
            parser.feed_data(raw.lstrip(b"\r\n"))
        except httptools.HttpParserUpgrade:
            # An offer of another protocol; it may be left unanswered.
            pass
        except httptools.HttpParserError as error:
            if isinstance(error.__context__, HeadError):
                raise error.__context__ from None
            raise HeadError(400, f"this is no HTTP request: {error}") from None
        headers = fields.headers
        try:
            path = unquote(httptools.parse_url(fields.url).path.decode("ascii"), errors="strict")
        except (httptools.HttpParserInvalidURLError, UnicodeDecodeError, AttributeError):
            raise HeadError(400, "the path is not a valid URL") from None
        method = parser.get_method().decode()
        length = _length(headers)
        return Head(
            method=method,
            path=path,
            route=self._router(method, path),
            length=length,
            header_length=_header_length(headers),
            encoding=(_text(headers, b"content-encoding") or "").lower().removeprefix("identity"),
            keep_alive=parser.should_keep_alive(),
            expects=(_text(headers, b"expect") or "").lower() == "100-continue",
            authorized=hmac.compare_digest(
                headers.get(b"authorization", b"") if self._credentials else b"", self._credentials
            ),
            echo=_echo(headers),
        )


def _length(headers: dict[bytes, bytes]) -> int | None:
    coding = headers.get(b"transfer-encoding")
    if coding is None:
        return int(headers.get(b"content-length", b"0"))
    if coding.lower() != b"chunked":
        raise HeadError(501, f"transfer coding {coding.decode('latin-1')!r} is not supported")
    return None


def _header_length(headers: dict[bytes, bytes]) -> int | None:
    try:
        return parse_header_length(_text(headers, _HEADER_LENGTH))
    except ProtocolError as error:
        raise HeadError(400, str(error)) from None


def _text(headers: dict[bytes, bytes], name: bytes) -> str | None:
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")


def _echo(headers: dict[bytes, bytes]) -> bytes:
    names = (name.encode() for name in ECHOED)
    return b"".join(b"%s: %s\r\n" % (name, headers[name]) for name in names if name in headers)
