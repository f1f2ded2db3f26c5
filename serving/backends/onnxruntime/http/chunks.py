"""A body that comes in chunks (RFC 9112, section 7.1), taken apart as strictly as heads are.

llhttp does not tell where such a body ends, and the next request may follow in the same read.
"""

from __future__ import annotations

import re
from enum import Enum, auto

from serving.backends.onnxruntime.http.head import HeadError

_SIZE = re.compile(rb"([0-9A-Fa-f]{1,16})(;[\t\x20-\x7e\x80-\xff]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+:[\t\x20-\x7e\x80-\xff]*")
_END = b"\r\n"
_LINE_BYTES = 1024


class _Line(Enum):
    SIZE = auto()
    AFTER_DATA = auto()
    TRAILER = auto()


class Chunks:
    """Attributes: ``body`` is what has come so far.

    Args:
        body_limit_bytes: of the body without its framing.
        trailer_limit: fields that may follow the body; they are dropped.
    """

    def __init__(self, body_limit_bytes: int, trailer_limit: int) -> None:
        self.body = bytearray()
        self._limit = body_limit_bytes
        self._trailers_left = trailer_limit
        self._expected = _Line.SIZE
        self._missing = 0
        self._begun = b""

    def feed(self, data: bytes) -> bytes | None:
        """What follows the body in ``data``; ``None`` until the body is complete.

        Raises:
            HeadError: these are no chunks, or too many.
        """
        data, self._begun = self._begun + data, b""
        at = 0
        while True:
            if self._missing:
                part = data[at : at + self._missing]
                self.body += part
                self._missing -= len(part)
                at += len(part)
            end = data.find(_END, at, at + _LINE_BYTES)
            if end < 0:
                self._begun = data[at:]
                if len(self._begun) >= _LINE_BYTES:
                    raise HeadError(400, f"a line between chunks has over {_LINE_BYTES} bytes")
                return None
            line, at = data[at:end], end + len(_END)
            if self._take(line):
                return data[at:]

    def _take(self, line: bytes) -> bool:
        """Go on by one line; whether it was the last."""
        if self._expected is _Line.SIZE:
            self._begin_chunk(line)
        elif self._expected is _Line.AFTER_DATA:
            if line:
                raise HeadError(400, f"a chunk is followed by {line[:40]!r} in place of a line end")
            self._expected = _Line.SIZE
        elif line:
            self._drop_trailer(line)
        else:
            return True
        return False

    def _begin_chunk(self, line: bytes) -> None:
        found = _SIZE.fullmatch(line)
        if found is None:
            raise HeadError(400, f"{line[:40]!r} is not the size of a chunk")
        self._missing = int(found[1], 16)
        if len(self.body) + self._missing > self._limit:
            raise HeadError(413, f"the body is larger than the limit of {self._limit} bytes")
        self._expected = _Line.AFTER_DATA if self._missing else _Line.TRAILER

    def _drop_trailer(self, line: bytes) -> None:
        self._trailers_left -= 1
        if self._trailers_left < 0:
            raise HeadError(431, "too many fields follow the chunks")
        if not _TRAILER.fullmatch(line):
            raise HeadError(400, f"{line[:40]!r} is no field to follow chunks")
