"""Clients that ask faster than they read, stand still, leave, or are too many."""

from __future__ import annotations

import gc
import weakref

from serving.backends.onnxruntime.http import fault
from serving.backends.onnxruntime.settings import Limits
from tests.http_wire import (
    CHUNKED,
    GET,
    POST,
    EchoHandler,
    FakeTransport,
    Wire,
    bodies,
    request,
    run,
)


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
