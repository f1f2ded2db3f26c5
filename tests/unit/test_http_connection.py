"""A client's connection as pure state: bytes in, replies out, whatever the pieces they come in."""

from __future__ import annotations

import gc
import itertools
import weakref

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.backends.onnxruntime.http import fault
from serving.backends.onnxruntime.settings import Limits
from serving.protocol import HEADER_LENGTH
from tests.http_wire import Answer, EchoHandler, FakeTransport, Wire, chunked, request, run

GET = request("GET", "/a")
POST = request("POST", "/b", b"body of b")
CHUNKED = chunked("/c", [b"body ", b"of c"], trailer=b"X-Sum: 1\r\n")
EVERY_FRAMING = GET + POST + CHUNKED + request("POST", "/d", b"\r\n\r\nGET /evil HTTP/1.1\r\n\r\n")
EXPECTED = [
    b"GET /a ",
    b"POST /b body of b",
    b"POST /c body of c",
    b"POST /d \r\n\r\nGET /evil HTTP/1.1\r\n\r\n",
]


def bodies(answers: list[Answer]) -> list[bytes]:
    assert [answer.status for answer in answers] == [200] * len(answers)
    return [answer.body for answer in answers]


def outcome(data: bytes, limits: Limits | None = None) -> tuple[int, str, int, bool]:
    """Status and reason of the one reply, requests that were handled, and whether it is the last.

    What follows must be dropped: it may be what the client would have somebody else believe.
    """
    found: list[tuple[int, str, int, bool]] = []

    async def scene() -> None:
        wire = Wire(limits=limits)
        await wire.feed(data, request("GET", "/smuggled"))
        (answer,) = wire.answers()
        last = answer.headers.get("connection") == "close"
        found.append((answer.status, answer.body.decode(), len(wire.handler.bodies), last))

    run(scene)
    return found[0]


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
    assert outcome(data)[::2] == (status, 0)
    assert outcome(data)[3]


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
    status, told, handled, last = outcome(head + CHUNK_FAULTS[fault_name])
    assert (status, handled, last) == (400, 0, True), told


def test_chunk_extensions_and_trailers_are_dropped() -> None:
    head = request("POST", "/a", b"", "Transfer-Encoding: chunked")

    async def scene() -> None:
        wire = Wire()
        await wire.feed(head + b'2;a="b"\r\nab\r\n00;x\r\nContent-Length: 9\r\n\r\n' + GET)
        assert bodies(wire.answers()) == [b"POST /a ab", b"GET /a "]

    run(scene)


def test_limits_are_exact() -> None:
    base = Limits()
    filled = len(request("GET", "/a", b"", "X: "))
    exact = Limits(head_bytes=filled + 10, headers=3, body_bytes=10)
    for data, status in [
        (request("GET", "/a", b"", "X: " + "a" * 10), 200),
        (request("GET", "/a", b"", "X: " + "a" * 11), 431),
        (request("GET", "/a", b"", "a: b", "c: d"), 200),
        (request("GET", "/a", b"", "a: b", "c: d", "e: f"), 431),
        (request("GET", "/a", b"x" * 10), 200),
        (request("GET", "/a", b"x" * 11), 413),
    ]:

        async def scene(data: bytes = data, status: int = status) -> None:
            limits = exact if b"Content-Length" not in data else Limits(body_bytes=10)
            wire = Wire(limits=limits)
            await wire.feed(data)
            assert [answer.status for answer in wire.answers()] == [status], data

        run(scene)
    for body, status in [(b"x" * 10, 200), (b"x" * 11, 413)]:
        data = chunked("/a", [body[:4], body[4:]])

        async def chunks(data: bytes = data, status: int = status) -> None:
            wire = Wire(limits=Limits(body_bytes=10, headers=3))
            await wire.feed(data)
            assert wire.answers()[0].status == status

        run(chunks)
    trailers = b"A: b\r\n" * (base.headers + 1)
    assert outcome(chunked("/a", [b"x"], trailer=trailers))[::3] == (431, True)


def test_an_endless_head_is_kept_up_to_the_limit_only() -> None:
    async def scene() -> None:
        wire = Wire(limits=Limits(head_bytes=1000))
        await wire.feed(*[b"GET /" + b"a" * 300] * 50)
        (answer,) = wire.answers()
        assert (answer.status, answer.headers["connection"]) == (431, "close")
        assert wire.connection._rest == b""

    run(scene)


def test_the_go_ahead_is_given_where_the_body_is_wanted_and_not_yet_there() -> None:
    expects = "Expect: 100-continue"
    head = request("POST", "/a", b"x" * 10, expects)[:-10]
    for pieces, limit, statuses in [
        ((head, b"x" * 10), 10, [100, 200]),
        ((head + b"x", b"x" * 9), 10, [200]),
        ((head + b"x" * 10,), 10, [200]),
        ((head,), 9, [413]),
        ((head.replace(b"/a", b"/no"),), 10, [404]),
        ((head.replace(b"/1.1", b"/1.0"), b"x" * 10), 10, [200]),
        ((request("GET", "/a", b"", expects),), 10, [200]),
        ((chunked("/a", [], expects)[:-5], b"0\r\n\r\n"), 10, [100, 200]),
    ]:

        async def scene(
            pieces: tuple[bytes, ...] = pieces, limit: int = limit, statuses: list[int] = statuses
        ) -> None:
            wire = Wire(limits=Limits(body_bytes=limit))
            await wire.feed(*pieces)
            assert [answer.status for answer in wire.answers()] == statuses

        run(scene)


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
    async def scene() -> None:
        wire = Wire()
        ids = ("traceparent: 00-1-2-01", "X-Request-Id: seven")
        await wire.feed(request("GET", "/a", b"", *ids), GET, b"nonsense\r\n\r\n")
        first, second, third = wire.answers()
        assert first.headers["traceparent"] == "00-1-2-01"
        assert first.headers["x-request-id"] == "seven"
        assert third.status == 400
        assert not {"traceparent", "x-request-id"} & {*second.headers, *third.headers}

    run(scene)


def test_a_large_body_that_nobody_wants_is_not_awaited() -> None:
    async def scene() -> None:
        for head in (
            request("POST", "/no", b"", "Content-Length: 70000"),
            chunked("/no", [])[:-5],
        ):
            wire = Wire()
            await wire.feed(head, b"x" * 1000)
            (answer,) = wire.answers()
            assert (answer.status, answer.headers["connection"]) == (404, "close")
            assert wire.handler.bodies == []

    run(scene)


def test_a_small_body_that_nobody_wants_costs_no_connection() -> None:
    async def scene() -> None:
        wire = Wire()
        unwanted = request("POST", "/no", b"x" * 1000)
        await wire.feed(unwanted[:200], unwanted[200:] + GET)
        assert [answer.status for answer in wire.answers()] == [404, 200]

    run(scene)


def test_strangers_are_turned_away_before_their_body() -> None:
    async def scene() -> None:
        wire = Wire(token="secret")
        await wire.feed(request("POST", "/a", b"", "Content-Length: 70000"))
        assert [answer.status for answer in wire.answers()] == [401]
        wire = Wire(token="secret")
        await wire.feed(request("GET", "/a", b"", "Authorization: bearer secret"))
        assert bodies(wire.answers()) == [b"GET /a "]

    run(scene)


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


def test_a_client_that_does_not_read_is_not_served_on() -> None:
    async def scene() -> None:
        wire = Wire(high_water=1000)
        data = b"".join(request("GET", f"/{n:04}") for n in range(5000))
        left = await wire.feed(data)
        assert 0 < left < len(data)
        served = len(wire.handler.bodies)
        assert served < 100
        assert len(wire.connection._rest) <= 2 * len(wire.server.scratch)
        while left:
            wire.transport.client_reads()
            left = await wire.feed(data[-left:])
        while len(wire.handler.bodies) < 5000:
            before = len(wire.handler.bodies)
            wire.transport.client_reads()
            await wire.settle()
            assert len(wire.handler.bodies) > before
        assert bodies(wire.answers()) == [f"GET /{n:04} ".encode() for n in range(5000)]

    run(scene)


def test_nor_is_one_that_asks_again_and_again() -> None:
    """One request in each read, so that nothing waits before its turn."""

    async def scene() -> None:
        wire = Wire(high_water=1000)
        assert await wire.feed(*[GET] * 1000) > 0
        assert len(wire.handler.bodies) < 100

    run(scene)


def test_what_comes_while_a_request_is_answered_is_kept_up_to_a_bound() -> None:
    async def scene() -> None:
        wire = Wire(EchoHandler(hold=True))
        left = await wire.feed(GET, *[GET * 100] * 100)
        assert left > 0
        assert len(wire.connection._rest) <= 2 * len(wire.server.scratch)
        assert len(wire.handler.bodies) == 1
        wire.handler.hold = False
        wire.connection.write(200, b"content-length: 0\r\n", [])
        while left:
            before = left
            left = await wire.feed(*[(GET * 10_000)[-left:]])
            assert left < before
        await wire.settle()
        await wire.settle()
        assert len(wire.answers()) == 10_001

    run(scene)


def test_a_client_that_leaves_is_told_of_once_and_forgotten() -> None:
    async def scene() -> None:
        wire = Wire(EchoHandler(hold=True))
        await wire.feed(POST + GET)
        wire.lose()
        assert wire.handler.gone_clients == [wire.connection]
        assert wire.connection.request is None
        wire.connection.write(200, b"content-length: 0\r\n", [])
        await wire.settle()
        assert wire.transport.sent == b""
        assert len(wire.handler.bodies) == 1
        idle = Wire()
        await idle.feed(GET, POST[:30])
        idle.lose()
        assert idle.handler.gone_clients == []

    run(scene)


def test_a_connection_that_ended_keeps_nothing_alive() -> None:
    """Without the garbage collector: a cycle would hold a body of megabytes until it runs."""

    class Work:
        def __init__(self, wire: Wire) -> None:
            self.connection = wire.connection

    async def scene() -> None:
        wire = Wire(EchoHandler(hold=True))
        await wire.feed(POST)
        work = Work(wire)
        wire.connection.request = work
        watch = weakref.ref(work)
        wire.lose()
        del work
        assert watch() is None

    gc.disable()
    try:
        run(scene)
    finally:
        gc.enable()


def test_an_answer_that_comes_twice_does_not_reach_the_next_request() -> None:
    async def scene() -> None:
        wire = Wire(EchoHandler(hold=True))
        await wire.feed(POST + GET)
        wire.connection.write(200, b"content-length: 1\r\n", [b"1"])
        wire.connection.write(200, b"content-length: 1\r\n", [b"2"])
        assert bodies(wire.answers()) == [b"1"]
        wire.connection.send(fault(500, "late"))
        await wire.settle()
        assert len(wire.handler.bodies) == 2
        wire.connection.write(200, b"content-length: 1\r\n", [b"3"])
        assert bodies(wire.answers()) == [b"1", b"3"]

    run(scene)


def swept(wire: Wire, seconds: int) -> bool:
    """Whether the connection is cut when ``seconds`` pass without a byte."""
    for _ in range(seconds):
        wire.server._sweep()
    return wire.transport.aborted


def test_what_stands_still_is_cut_and_what_moves_is_not() -> None:
    limits = Limits(stall_s=3, idle_s=6)

    async def scene() -> None:
        for begun in (b"GET", POST[:-2], CHUNKED[:-9], GET + b"GET"):
            wire = Wire(limits=limits)
            await wire.feed(begun)
            assert not swept(wire, limits.stall_s)
            assert swept(wire, 1), begun
        idle = Wire(limits=limits)
        assert not swept(idle, 5)
        await idle.feed(GET)
        assert not swept(idle, limits.idle_s)
        assert swept(idle, 1)

    run(scene)


def test_bytes_of_a_body_are_progress_and_bytes_of_a_head_are_not() -> None:
    limits = Limits(stall_s=3)

    async def scene() -> None:
        for start, drop in ((POST[:-6], POST[-6:]), (CHUNKED[:-9], CHUNKED[-9:])):
            wire = Wire(limits=limits)
            await wire.feed(start)
            for n in range(len(drop)):
                assert not swept(wire, 2)
                await wire.feed(drop[n : n + 1])
            assert [answer.status for answer in wire.answers()] == [200]
        wire = Wire(limits=limits)
        for n in range(3):
            await wire.feed(GET[n : n + 1])
            assert not swept(wire, 1)
        await wire.feed(GET[3:4])
        assert swept(wire, 1)

    run(scene)


def test_a_long_answer_does_not_count_against_its_client() -> None:
    limits = Limits(stall_s=3, idle_s=6)

    async def scene() -> None:
        wire = Wire(EchoHandler(hold=True), limits=limits, high_water=10)
        await wire.feed(GET)
        assert not swept(wire, 20)
        wire.connection.write(200, b"content-length: 100\r\n", [b"x" * 100])
        assert not swept(wire, limits.stall_s)
        wire.transport.unread -= 20
        assert not swept(wire, limits.stall_s)
        assert swept(wire, 2)

    run(scene)


def test_one_client_too_many_is_told_so() -> None:
    async def scene() -> None:
        wire = Wire(limits=Limits(connections=1))
        second = FakeTransport()
        extra = wire.join(second)
        assert second.closing
        assert second.sent.startswith(b"HTTP/1.1 503 ")
        assert b"retry-after: 1\r\n" in second.sent
        extra.connection_lost(None)
        wire.lose()
        third = FakeTransport()
        wire.join(third)
        assert not third.closing

    run(scene)


def test_draining_closes_idle_clients_and_the_others_after_their_answer() -> None:
    async def scene() -> None:
        wire = Wire(EchoHandler(hold=True))
        idle = FakeTransport()
        wire.join(idle)
        await wire.feed(GET + GET)
        wire.server.drain()
        assert idle.closing
        assert not wire.transport.closing
        assert wire.server.owed == 1
        wire.connection.write(200, b"content-length: 0\r\n", [])
        (answer,) = wire.answers()
        assert answer.headers["connection"] == "close"
        assert wire.transport.closing
        assert wire.server.owed == 0
        await wire.settle()
        assert len(wire.handler.bodies) == 1

    run(scene)


def test_a_reply_that_is_not_yet_read_is_owed() -> None:
    async def scene() -> None:
        wire = Wire(high_water=10)
        await wire.feed(GET)
        assert wire.server.owed == 1
        wire.transport.client_reads()
        assert wire.server.owed == 0

    run(scene)
