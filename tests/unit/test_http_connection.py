"""A client's connection as pure state: bytes in, replies out, whatever the pieces they come in."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.backends.onnxruntime.settings import Limits
from serving.protocol import HEADER_LENGTH
from tests.http_wire import (
    CHUNKED,
    GET,
    POST,
    EchoHandler,
    Wire,
    bodies,
    chunked,
    conversation,
    request,
    run,
)

EVERY_FRAMING = GET + POST + CHUNKED + request("POST", "/d", b"\r\n\r\nGET /evil HTTP/1.1\r\n\r\n")
EXPECTED = [
    b"GET /a ",
    b"POST /b body of b",
    b"POST /c body of c",
    b"POST /d \r\n\r\nGET /evil HTTP/1.1\r\n\r\n",
]


def refusal(data: bytes) -> tuple[int, str]:
    """Status and reason of the one reply.

    What follows must be dropped with the connection: it may be what the client would have somebody
    else believe.
    """
    (answer,) = conversation(data, request("GET", "/smuggled"))
    assert answer.headers["connection"] == "close"
    return answer.status, json.loads(answer.body)["error"]


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_every_split_of_pipelined_requests_gives_the_same_answers(later: bool) -> None:
    async def scene() -> None:
        for at in range(1, len(EVERY_FRAMING)):
            wire = Wire(EchoHandler(later=later))
            assert await wire.feed(EVERY_FRAMING[:at], EVERY_FRAMING[at:]) == 0
            assert bodies(wire.answers()) == EXPECTED, at

    run(scene)


@pytest.mark.parametrize("later", [False, True], ids=["at once", "later"])
def test_byte_by_byte(later: bool) -> None:
    async def scene() -> None:
        wire = Wire(EchoHandler(later=later))
        await wire.feed(*(EVERY_FRAMING[n : n + 1] for n in range(len(EVERY_FRAMING))))
        assert bodies(wire.answers()) == EXPECTED

    run(scene)


SIZES = st.one_of(st.integers(0, 300), st.sampled_from([65_535, 65_536, 65_537, 150_000]))


@settings(deadline=None, max_examples=60)
@given(
    requests=st.lists(st.tuples(SIZES, st.booleans(), st.integers(1, 70_000)), min_size=1),
    cuts=st.lists(st.integers(0, 400_000), max_size=6),
    later=st.booleans(),
)
def test_requests_of_any_size_cut_anywhere(
    requests: list[tuple[int, bool, int]], cuts: list[int], later: bool
) -> None:
    """Each is (bytes of its body, whether it comes in chunks, bytes of a chunk)."""
    wires, expected = [], []
    for number, (size, in_chunks, chunk) in enumerate(requests[:6]):
        body = bytes([65 + number]) * size
        pieces = [body[at : at + chunk] for at in range(0, size, chunk)]
        path = f"/{number}"
        wires.append(chunked(path, pieces) if in_chunks else request("POST", path, body))
        expected.append(f"POST {path} ".encode() + body)
    data = b"".join(wires)
    points = sorted({0, len(data), *(cut % len(data) for cut in cuts)})

    async def scene() -> None:
        wire = Wire(EchoHandler(later=later))
        spans = itertools.pairwise(points)
        assert await wire.feed(*(data[start:end] for start, end in spans)) == 0
        assert bodies(wire.answers()) == expected

    run(scene)


REFUSED = [
    (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
    (request("POST", "/a", b"", "Content-Length: 3", "Transfer-Encoding: chunked"), 400),
    (request("POST", "/a", b"", "Content-Length: 3", "Content-Length: 4"), 400),
    (request("POST", "/a", b"", "Content-Length: 3", "Content-Length: 3"), 400),
    (request("POST", "/a", b"", "Transfer-Encoding: gzip, chunked"), 501),
    (request("POST", "/a", b"", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked"), 400),
    (request("POST", "/a", b"", "Transfer-Encoding: chunked", version="1.0"), 400),
    (request("GET", "/a", b"", version="2.0"), 505),
    (b"GET /a HTTP/1.1\r\n\r\n", 400),
]


@pytest.mark.parametrize(("data", "status"), REFUSED)
def test_a_doubtful_head_ends_the_connection(data: bytes, status: int) -> None:
    assert refusal(data)[0] == status


CHUNK_FAULTS = {
    "no size": b"\r\nab\r\n0\r\n\r\n",
    "a size with a sign": b"+2\r\nab\r\n0\r\n\r\n",
    "a size with a prefix": b"0x2\r\nab\r\n0\r\n\r\n",
    "a size with an underscore": b"1_0\r\nab\r\n0\r\n\r\n",
    "a size with a space": b"2 \r\nab\r\n0\r\n\r\n",
    "a size beyond 64 bits": b"10000000000000002\r\nab\r\n0\r\n\r\n",
    "a size ended by a line feed": b"2\nab\r\n0\r\n\r\n",
    "an extension with a line feed": b"2;a\nb\r\nab\r\n0\r\n\r\n",
    "an endless extension": b"2;" + b"a" * 5000,
    "too much data": b"2\r\nabc\r\n0\r\n\r\n",
    "too little data": b"3\r\nab\r\n0\r\n\r\n",
    "data ended by a line feed": b"2\r\nab\n0\r\n\r\n",
    "a trailer without a colon": b"2\r\nab\r\n0\r\nGET /evil HTTP/1.1\r\n\r\n",
    "a trailer that is folded": b"2\r\nab\r\n0\r\nA: b\r\n c\r\n\r\n",
    "a trailer with a line feed": b"2\r\nab\r\n0\r\nA: b\n\r\n\r\n",
}


@pytest.mark.parametrize("fault_name", CHUNK_FAULTS)
def test_faulty_chunks_end_the_connection(fault_name: str) -> None:
    head = request("POST", "/a", b"", "Transfer-Encoding: chunked")
    assert refusal(head + CHUNK_FAULTS[fault_name])[0] == 400


def test_chunk_extensions_and_trailers_are_dropped() -> None:
    head = request("POST", "/a", b"", "Transfer-Encoding: chunked")
    body = b'2;a="b"\r\nab\r\n00;x\r\nContent-Length: 9\r\n\r\n'
    assert bodies(conversation(head + body + GET)) == [b"POST /a ab", b"GET /a "]


HEAD_BYTES = len(request("GET", "/a", b"", "X: ")) + 10
TRAILERS = b"A: b\r\n" * 3


@pytest.mark.parametrize(
    ("limits", "fitting", "beyond", "status"),
    [
        (
            Limits(head_bytes=HEAD_BYTES),
            request("GET", "/a", b"", "X: " + "a" * 10),
            request("GET", "/a", b"", "X: " + "a" * 11),
            431,
        ),
        (
            Limits(headers=3),
            request("GET", "/a", b"", "a: b", "c: d"),
            request("GET", "/a", b"", "a: b", "c: d", "e: f"),
            431,
        ),
        (
            Limits(headers=3),
            chunked("/a", [b"x"], trailer=TRAILERS),
            chunked("/a", [b"x"], trailer=TRAILERS + b"A: b\r\n"),
            431,
        ),
        (
            Limits(body_bytes=10),
            request("POST", "/a", b"x" * 10),
            request("POST", "/a", b"x" * 11),
            413,
        ),
        (
            Limits(body_bytes=10),
            chunked("/a", [b"x" * 4, b"x" * 6]),
            chunked("/a", [b"x" * 4, b"x" * 7]),
            413,
        ),
    ],
    ids=["head", "header fields", "trailers", "body", "body in chunks"],
)
def test_limits_are_exact(limits: Limits, fitting: bytes, beyond: bytes, status: int) -> None:
    assert [answer.status for answer in conversation(fitting, limits=limits)] == [200]
    (answer,) = conversation(beyond, GET, limits=limits)
    assert (answer.status, answer.headers["connection"]) == (status, "close")


def test_an_endless_head_is_kept_up_to_the_limit_only() -> None:
    async def scene() -> None:
        wire = Wire(limits=Limits(head_bytes=1000))
        await wire.feed(*[b"GET /" + b"a" * 300] * 50)
        (answer,) = wire.answers()
        assert (answer.status, answer.headers["connection"]) == (431, "close")
        assert wire.connection._rest == b""

    run(scene)


EXPECTS = "Expect: 100-continue"
EXPECTANT = request("POST", "/a", b"x" * 10, EXPECTS)[:-10]


@pytest.mark.parametrize(
    ("pieces", "body_limit", "statuses"),
    [
        ((EXPECTANT, b"x" * 10), 10, [100, 200]),
        ((EXPECTANT + b"x", b"x" * 9), 10, [200]),
        ((EXPECTANT + b"x" * 10,), 10, [200]),
        ((EXPECTANT,), 9, [413]),
        ((EXPECTANT.replace(b"/a", b"/no"),), 10, [404]),
        ((EXPECTANT.replace(b"/1.1", b"/1.0"), b"x" * 10), 10, [200]),
        ((request("GET", "/a", b"", EXPECTS),), 10, [200]),
        ((chunked("/a", [], EXPECTS)[:-5], b"0\r\n\r\n"), 10, [100, 200]),
    ],
)
def test_the_go_ahead_is_given_where_the_body_is_wanted_and_not_yet_there(
    pieces: tuple[bytes, ...], body_limit: int, statuses: list[int]
) -> None:
    answers = conversation(*pieces, limits=Limits(body_bytes=body_limit))
    assert [answer.status for answer in answers] == statuses


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize(
    ("version", "field", "told"),
    [
        ("1.1", "X: y", None),
        ("1.1", "Connection: keep-alive", None),
        ("1.1", "Connection: foo, Close", "close"),
        ("1.0", "X: y", "close"),
        ("1.0", "Connection: Keep-Alive", "keep-alive"),
    ],
)
def test_the_connection_is_kept_as_the_client_wishes(
    method: str, version: str, field: str, told: str | None
) -> None:
    async def scene() -> None:
        wire = Wire()
        body = b"body" if method == "POST" else b""
        await wire.feed(request(method, "/a", body, field, version=version))
        (answer,) = wire.answers()
        assert answer.headers.get("connection") == told
        assert wire.transport.closing == (told == "close")

    run(scene)


def test_a_head_is_answered_without_the_body_and_with_its_length() -> None:
    async def scene() -> None:
        wire = Wire()
        await wire.feed(request("HEAD", "/a"), request("HEAD", "/no"), GET)
        ok, refused, get = wire.answers("HEAD", "HEAD", "GET")
        assert (ok.status, ok.headers["content-length"]) == (200, str(len("HEAD /a ")))
        assert (refused.status, refused.headers["content-type"]) == (404, "application/json")
        assert get.body == b"GET /a "

    run(scene)


def test_trace_and_request_ids_come_back_and_only_to_their_own_request() -> None:
    ids = ("traceparent: 00-1-2-01", "X-Request-Id: seven")
    first, second, third = conversation(request("GET", "/a", b"", *ids), GET, b"nonsense\r\n\r\n")
    assert first.headers["traceparent"] == "00-1-2-01"
    assert first.headers["x-request-id"] == "seven"
    assert third.status == 400
    assert not {"traceparent", "x-request-id"} & {*second.headers, *third.headers}


@pytest.mark.parametrize(
    "head", [request("POST", "/no", b"", "Content-Length: 70000"), chunked("/no", [])[:-5]]
)
def test_a_large_body_that_nobody_wants_is_not_awaited(head: bytes) -> None:
    (answer,) = conversation(head, b"x" * 1000, GET)
    assert (answer.status, answer.headers["connection"]) == (404, "close")


def test_a_small_body_that_nobody_wants_costs_no_connection() -> None:
    unwanted = request("POST", "/no", b"x" * 1000)
    answers = conversation(unwanted[:200], unwanted[200:] + GET)
    assert [answer.status for answer in answers] == [404, 200]


def test_strangers_are_turned_away_before_their_body() -> None:
    head = request("POST", "/a", b"", "Content-Length: 70000")
    assert [answer.status for answer in conversation(head, token="secret")] == [401]
    known = request("GET", "/a", b"", "Authorization: bearer secret")
    assert bodies(conversation(known, token="secret")) == [b"GET /a "]


@pytest.mark.parametrize("json_bytes", [0, 1, 63, 64, 65, 1000])
def test_a_large_body_is_read_in_place_with_its_tensors_aligned(json_bytes: int) -> None:
    async def scene() -> None:
        wire = Wire()
        body = bytes(range(256)) * 1000
        data = request("POST", "/a", body, f"{HEADER_LENGTH}: {json_bytes}")
        await wire.feed(data[:500])
        buffer = wire.connection.get_buffer(-1)
        assert len(buffer) == len(data) - 500
        await wire.feed(data[500:])
        (received,) = wire.handler.bodies
        assert received == body
        start = np.frombuffer(received, np.uint8)[json_bytes:].ctypes.data
        assert start % 64 == 0
        assert np.shares_memory(np.frombuffer(received, np.uint8), np.frombuffer(buffer, np.uint8))

    run(scene)
