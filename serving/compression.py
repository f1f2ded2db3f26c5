"""Request bodies that arrive compressed, unpacked up to a limit and never beyond it."""

from __future__ import annotations

import zlib
from collections.abc import Mapping

from serving.protocol import ProtocolError

# What `Content-Encoding: deflate` means is the zlib format (RFC 9110, section 8.4.1.2).
_WINDOW_BITS: Mapping[str, int] = {"gzip": 16 + zlib.MAX_WBITS, "deflate": zlib.MAX_WBITS}
ENCODINGS = tuple(_WINDOW_BITS)


class BodyTooLargeError(ProtocolError):
    """The body, unpacked, is larger than the server takes; over HTTP a 413."""


def decompress(body: bytes | memoryview, encoding: str, limit_bytes: int) -> bytes:
    """The content of ``body``, which came with ``Content-Encoding: <encoding>``.

    No more than ``limit_bytes`` + 1 are ever unpacked, whatever the body claims to hold.

    Raises:
        BodyTooLargeError: the content is larger than ``limit_bytes``.
        ProtocolError: the encoding is unknown, or the body is damaged, cut off or has a tail.
    """
    window = _WINDOW_BITS.get(encoding.strip().lower())
    if window is None:
        raise ProtocolError(
            f"content encoding {encoding[:40]!r} is not one of {', '.join(ENCODINGS)}"
        )
    stream = zlib.decompressobj(window)
    try:
        content = stream.decompress(body, limit_bytes + 1)
    except zlib.error as error:
        raise ProtocolError(f"the body is not {encoding}: {error}") from None
    if len(content) > limit_bytes:
        raise BodyTooLargeError(
            f"the body of {len(body)} bytes unpacks to more than the limit of {limit_bytes} bytes"
        )
    if not stream.eof:
        raise ProtocolError(f"the {encoding} body ends before its end, after {len(body)} bytes")
    if stream.unused_data:
        raise ProtocolError(f"{len(stream.unused_data)} bytes follow the {encoding} body")
    return content
