from __future__ import annotations

import gzip
import tracemalloc
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.compression import ENCODINGS, BodyTooLargeError, decompress
from serving.protocol import ProtocolError

PACK = {"gzip": gzip.compress, "deflate": zlib.compress}
LIMIT = 1 << 20


@given(content=st.binary(max_size=2000), encoding=st.sampled_from(ENCODINGS))
def test_what_was_packed_comes_back(content: bytes, encoding: str) -> None:
    assert decompress(PACK[encoding](content), encoding, LIMIT) == content
    assert decompress(memoryview(PACK[encoding](content)), encoding.upper(), LIMIT) == content


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_the_limit_is_exact(encoding: str) -> None:
    body = PACK[encoding](bytes(1000))
    assert decompress(body, encoding, 1000) == bytes(1000)
    with pytest.raises(BodyTooLargeError, match="limit of 999 bytes"):
        decompress(body, encoding, 999)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_bomb_takes_no_more_memory_than_the_limit(encoding: str) -> None:
    bomb = PACK[encoding](bytes(50 * LIMIT))
    tracemalloc.start()
    with pytest.raises(BodyTooLargeError):
        decompress(bomb, encoding, LIMIT)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 4 * LIMIT


@pytest.mark.parametrize("encoding", ENCODINGS)
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda body: body[:-1], "ends before its end"),
        (lambda body: body[: len(body) // 2], "ends before its end"),
        (lambda body: body[:0], "ends before its end"),
        (lambda body: body + b"tail", "4 bytes follow"),
        (lambda body: body + body, "bytes follow"),
        (lambda body: b"plain" + body, "the body is not"),
        (lambda body: body[:-6] + bytes([body[-6] ^ 1]) + body[-5:], "is not|ends before"),
    ],
    ids=["cut by one", "half", "empty", "tail", "twice", "not packed", "damaged"],
)
def test_a_damaged_body_is_the_clients_fault(encoding: str, spoil: object, reason: str) -> None:
    body = PACK[encoding](b"what was said, and said again, and said again")
    with pytest.raises(ProtocolError, match=reason):
        decompress(spoil(body), encoding, LIMIT)  # type: ignore[operator]


@given(body=st.binary(max_size=200), encoding=st.sampled_from(ENCODINGS))
def test_anything_at_all_ends_in_content_or_a_client_fault(body: bytes, encoding: str) -> None:
    try:
        content = decompress(body, encoding, LIMIT)
    except ProtocolError:
        return
    assert len(content) <= LIMIT


@pytest.mark.parametrize("encoding", ["br", "", "gzip, gzip", "x" * 1000])
def test_an_unknown_encoding_is_refused_by_name(encoding: str) -> None:
    with pytest.raises(ProtocolError, match="is not one of gzip, deflate") as caught:
        decompress(b"", encoding, LIMIT)
    assert len(str(caught.value)) < 120
