"""A reply and its bytes."""

from __future__ import annotations

import http
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

JSON = "application/json"
_REASONS = {status.value: status.phrase for status in http.HTTPStatus}
_STATUS_LINES = {
    code: f"HTTP/1.1 {code} {reason}\r\n".encode() for code, reason in _REASONS.items()
}


@dataclass(frozen=True)
class Reply:
    """An HTTP reply before it is sent."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = ()
    media_type: str = JSON


def status_line(status: int) -> bytes:
    return _STATUS_LINES[status]


def head_lines(reply: Reply) -> bytes:
    """Everything between the status line and the empty line, that is to say the reply's own."""
    lines = [f"content-length: {len(reply.body)}"]
    if reply.body:
        lines.append(f"content-type: {reply.media_type}")
    lines += [f"{name}: {value}" for name, value in reply.headers]
    return "".join(f"{line}\r\n" for line in lines).encode("latin-1")


def json_reply(value: Mapping[str, Any] | list[Any], status: int = 200) -> Reply:
    return Reply(status, orjson.dumps(value))


def fault(status: int, text: str, *headers: tuple[str, str]) -> Reply:
    """A refusal, with the reason as the protocol wants it."""
    return Reply(status, orjson.dumps({"error": text}), headers)
