"""Chunked bodies: the same in any pieces, read as others read them, never beyond a limit."""

from __future__ import annotations

import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.backends.onnxruntime.http.chunks import Chunks
from serving.backends.onnxruntime.http.head import HeadError

CODED = b'3\r\nabc\r\n0A;x="y"\r\n\r\n0\r\n\r\nabc\r\n000\r\nX: y\r\nZ:\r\n\r\n'
BODY = b"abc\r\n0\r\n\r\nabc"
NEXT = b"GET / HTTP/1.1"


def read(*pieces: bytes, limit: int = 1000) -> tuple[bytes, bytes | None]:
    """The body, and what follows it in the last of ``pieces`` (``None`` when it has no end)."""
    chunks = Chunks(limit, 100)
    for index, piece in enumerate(pieces):
        rest = chunks.feed(piece)
        if rest is not None:
            return bytes(chunks.body), rest + b"".join(pieces[index + 1 :])
    return bytes(chunks.body), None


def test_every_split_gives_the_same_body_and_the_same_rest() -> None:
    data = CODED + NEXT
    for at in range(len(data)):
        assert read(data[:at], data[at:]) == (BODY, NEXT)
    assert read(*(data[n : n + 1] for n in range(len(data)))) == (BODY, NEXT)
    for at in range(len(CODED)):
        assert read(CODED[:at])[1] is None


@given(
    st.lists(st.tuples(st.integers(0, 60), st.integers(0, 2), st.sampled_from(
        [b"\r", b"\n", b"\r\n", b"0", b"1", b"f", b" ", b";", b"-", b"x", b"\0", b":", b"0\r\n\r\n"]
    )), min_size=1, max_size=3)
)  # fmt: skip
def test_what_is_taken_is_taken_alike_by_another_parser(
    edits: list[tuple[int, int, bytes]],
) -> None:
    """h11 is the more lenient, and takes any bytes for an extension."""
    data = CODED
    for at, length, snippet in edits:
        data = data[:at] + snippet + data[at + length :]
    try:
        body, rest = read(data)
    except HeadError:
        return
    if rest is None:
        return
    other = h11.Connection(h11.SERVER)
    other.receive_data(b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n" + data)
    assert isinstance(other.next_event(), h11.Request)
    theirs = b""
    while isinstance(event := other.next_event(), h11.Data):
        theirs += event.data
    assert isinstance(event, h11.EndOfMessage)
    assert (theirs, other.trailing_data[0]) == (body, rest)


def test_the_limit_is_refused_before_the_data_comes() -> None:
    assert read(b"5\r\nabcde\r\n0\r\n\r\n", limit=5) == (b"abcde", b"")
    for data in (b"6\r\n", b"3\r\nabc\r\n3\r\n", b"ffffffffffffffff\r\n"):
        with pytest.raises(HeadError) as caught:
            read(data, limit=5)
        assert caught.value.status == 413


def test_lines_between_chunks_are_bounded() -> None:
    assert read(b"1;" + b"x" * 1000 + b"\r\na\r\n0\r\n\r\n") == (b"a", b"")
    for begun in (b"1;", b"1\r\na\r\n0\r\nX: "):
        with pytest.raises(HeadError):
            read(begun, *[b"x" * 100] * 11)
    with pytest.raises(HeadError) as caught:
        read(b"0\r\n" + b"X: y\r\n" * 101)
    assert caught.value.status == 431
