"""A link in user space: a TCP relay that hands bytes over when the model says that they arrive.

It needs no root. All its connections share one link, or each has a link of its own. A connection
opens after the round trip of its handshake; a reset crosses at once.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import heapq
import math
import signal
import socket
import struct
import sys
import time
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import uvloop

from loadtest.links.model import SEGMENT_BYTES, Direction, Flow, Link, link_of_connection
from loadtest.links.profile import link_profile
from loadtest.links.usage import INTERVAL_S, append_reading
from serving.errors import InfersweepError, MachineError, UsageError
from serving.timerfd import TimerFd

QUEUE_NS = 100_000_000
"""What may wait at the bottleneck before the relay reads no further (an assumption)."""
_CHUNK_S = 0.002
_MOST_BYTES = 65536
_FEWEST_CHUNKS = 256
_FIRST_LEAD_NS, _LEAD_STEP_NS, _MOST_LEAD_NS = 80_000, 2_000, 200_000
_PROBE_S = 1.0
_RESET = struct.pack("ii", 1, 0)


class Agenda:
    """Wakes tasks at moments of ``time.monotonic_ns``, finer than the loop's own timers.

    It wakes them a little early, by what it has lately taken from the timer to the end of the work.
    """

    def __init__(self) -> None:
        self._timer = TimerFd()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._timer.fd, self._ring)
        self._waiting: list[tuple[int, int, asyncio.Future[None]]] = []
        self._count = 0
        self._lead_ns = _FIRST_LEAD_NS

    async def until(self, moment_ns: int) -> bool:
        """Return in time for ``moment_ns``: whether that took a wait."""
        early_ns = moment_ns - self._lead_ns
        if early_ns <= time.monotonic_ns():
            return False
        done = self._loop.create_future()
        self._count += 1
        heapq.heappush(self._waiting, (early_ns, self._count, done))
        if self._waiting[0][2] is done:
            self._timer.set(early_ns)
        await done
        return True

    def worked(self, moment_ns: int) -> None:
        """The work that was waited for is done: step the lead towards the median that it needs."""
        late = time.monotonic_ns() > moment_ns
        self._lead_ns += _LEAD_STEP_NS if late else -_LEAD_STEP_NS
        self._lead_ns = min(max(self._lead_ns, 0), _MOST_LEAD_NS)

    def _ring(self) -> None:
        with contextlib.suppress(BlockingIOError):
            # The timer may have been set anew since it rang.
            self._timer.clear()
        now_ns = time.monotonic_ns()
        while self._waiting and self._waiting[0][0] <= now_ns:
            _, _, done = heapq.heappop(self._waiting)
            if not done.done():
                done.set_result(None)
        if self._waiting:
            self._timer.set(self._waiting[0][0])

    def close(self) -> None:
        self._loop.remove_reader(self._timer.fd)
        self._timer.close()


@dataclass(frozen=True)
class _Carrier:
    """A link and, for each way, who of its connections may wait for room at the bottleneck."""

    link: Link
    uplink_room: asyncio.Lock = field(default_factory=asyncio.Lock)
    downlink_room: asyncio.Lock = field(default_factory=asyncio.Lock)


class _Way:
    """One direction of one connection."""

    def __init__(
        self,
        relay: Relay,
        direction: Direction,
        room: asyncio.Lock,
        rate_bps: float,
        source: socket.socket,
        target: socket.socket,
    ) -> None:
        self.flow = Flow()
        self._relay = relay
        self._direction = direction
        self._room = room
        self._source = source
        self._target = target
        self._chunk_bytes = chunk_bytes(rate_bps)
        # What is on its way or waits for a repair at the full rate; then TCP's window is full.
        held_s = QUEUE_NS / 1e9 + relay.longest_way_s
        chunks = math.ceil(held_s * rate_bps / 8 / self._chunk_bytes)
        self._held: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(max(chunks, _FEWEST_CHUNKS))

    async def read(self) -> None:
        """Take bytes as long as the bottleneck has room."""
        loop = asyncio.get_running_loop()
        data = b"-"
        while data:
            # One after the other: all that wait would otherwise wake for the same room.
            async with self._room:
                await self._relay.until(self._direction.free_at_ns - QUEUE_NS)
            data = await loop.sock_recv(self._source, self._chunk_bytes)
            arrives_ns = self._direction.carry(
                self.flow, self._relay.now_ns(), len(data), more=len(data) == self._chunk_bytes
            )
            await self._held.put((arrives_ns, data))

    async def deliver(self) -> None:
        """Hand over what arrives, in its order."""
        loop = asyncio.get_running_loop()
        while True:
            arrives_ns, data = await self._held.get()
            waited = await self._relay.until(arrives_ns)
            if not data:
                self._target.shutdown(socket.SHUT_WR)
                return
            await loop.sock_sendall(self._target, data)
            if waited:
                self._relay.worked(arrives_ns)


class Relay:
    """From a listening socket over ``link`` to the address of a server.

    ``each_connection``: over a link like it that is the connection's own.
    """

    def __init__(
        self, link: Link, server: tuple[str, int], *, each_connection: bool = False
    ) -> None:
        profile = link.profile
        self.longest_way_s = (profile.round_trip_ms + profile.timeout_stall_ms) / 1e3
        self._shared = _Carrier(link)
        self._each_connection = each_connection
        self._numbers = count()
        self._server = server
        self._agenda = Agenda()
        self._started_ns = time.monotonic_ns()
        self._connections: set[asyncio.Task[None]] = set()

    def now_ns(self) -> int:
        return time.monotonic_ns() - self._started_ns

    async def until(self, moment_ns: int) -> bool:
        return await self._agenda.until(self._started_ns + moment_ns)

    def worked(self, moment_ns: int) -> None:
        self._agenda.worked(self._started_ns + moment_ns)

    async def serve(self, listening: socket.socket) -> None:
        """Take connections until this task is cancelled; those that are open then are reset.

        Raises:
            MachineError: the machine gives no further connection.
        """
        loop = asyncio.get_running_loop()
        try:
            while True:
                client, _ = await loop.sock_accept(listening)
                server = socket.socket(_family(self._server[0]))
                task = loop.create_task(self._connect(client, server))
                self._connections.add(task)
                task.add_done_callback(self._connections.discard)
        except OSError as error:
            raise MachineError(
                f"the link's relay takes no further connection: {error.strerror}",
                hint="Raise the limit of open files (ulimit -n), or use fewer connections.",
            ) from None
        finally:
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            self._agenda.close()

    async def _connect(self, client: socket.socket, server: socket.socket) -> None:
        """One connection from its handshake to its end."""
        whole = False
        try:
            for end in (client, server):
                end.setblocking(False)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            whole = await self._carry(client, server)
        finally:
            for end in (client, server):
                if not whole:
                    with contextlib.suppress(OSError):
                        end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                end.close()

    def _carrier(self) -> _Carrier:
        """Of the next connection."""
        if not self._each_connection:
            return self._shared
        return _Carrier(link_of_connection(self._shared.link, next(self._numbers)))

    async def _carry(self, client: socket.socket, server: socket.socket) -> bool:
        """Whether both sides ended the connection in good order."""
        carrier = self._carrier()
        link = carrier.link
        rates_bps = link.profile.uplink_bps, link.profile.downlink_bps
        up = _Way(self, link.uplink, carrier.uplink_room, rates_bps[0], client, server)
        down = _Way(self, link.downlink, carrier.downlink_room, rates_bps[1], server, client)
        asked_ns = link.uplink.carry(up.flow, self.now_ns(), 0)
        opened_ns = link.downlink.carry(down.flow, asked_ns, 0)
        try:
            await asyncio.get_running_loop().sock_connect(server, self._server)
        except OSError as error:
            _log(f"no connection to {self._server[0]}:{self._server[1]}: {error.strerror}")
            return False
        await self.until(opened_ns)
        whole = True
        try:
            async with asyncio.TaskGroup() as group:
                for way in (up, down):
                    group.create_task(way.read())
                    group.create_task(way.deliver())
        except* OSError:
            whole = False
        return whole


def chunk_bytes(rate_bps: float) -> int:
    """What is carried at once: a segment, or what the rate carries in 2 ms, up to 64 KiB."""
    return int(min(max(SEGMENT_BYTES, rate_bps / 8 * _CHUNK_S), _MOST_BYTES))


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


def _log(text: str) -> None:
    print(f"link: {text}", file=sys.stderr, flush=True)  # noqa: T201  (the relay's log)


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens; port 0 takes a free one.

    Raises:
        MachineError: the port is in use, or the address is no address of this machine.
    """
    listening = socket.socket(_family(host))
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
    except (OSError, OverflowError) as error:
        listening.close()
        why = str(error).rstrip(".")
        raise MachineError(
            f"the link cannot listen at {host}:{port}: {why}",
            hint="Choose another port, or stop what listens there.",
        ) from None
    listening.listen(1024)
    listening.setblocking(False)
    return listening


def address(text: str) -> tuple[str, int]:
    """``HOST:PORT`` as the address that takes a connection; the first where none does.

    Raises:
        UsageError: it is none, or the host has no address.
    """
    host, _, port = text.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
    except (OSError, ValueError, OverflowError) as error:
        raise UsageError(
            f"{text!r} is no address of a server: {error}", hint="Give HOST:PORT."
        ) from None
    places = [(str(entry[4][0]), int(entry[4][1])) for entry in found]
    for place in places if len(places) > 1 else ():
        with contextlib.suppress(OSError), socket.create_connection(place, _PROBE_S):
            return place
    return places[0]


async def _keep_usage(file: Path) -> None:
    while True:
        append_reading(file)
        await asyncio.sleep(INTERVAL_S)


async def _run(
    link: Link, server: tuple[str, int], listening: socket.socket, asked: argparse.Namespace
) -> None:
    relay = Relay(link, server, each_connection=asked.each_connection)
    serving = asyncio.ensure_future(relay.serve(listening))
    keeping = asyncio.ensure_future(_keep_usage(asked.usage)) if asked.usage else None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, serving.cancel)
    host, port = listening.getsockname()[:2]
    print(f"{host}:{port}", flush=True)  # noqa: T201  (what its caller waits for)
    with contextlib.suppress(asyncio.CancelledError):
        await serving
    if keeping is not None:
        keeping.cancel()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.links.relay")
    parser.add_argument("--link", required=True, help="a named profile, or a TOML or JSON file")
    parser.add_argument("--to", required=True, help="HOST:PORT of the server")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--each-connection", action="store_true", help="a link of its own for every connection"
    )
    parser.add_argument("--usage", type=Path, help="file for its own CPU time, twice a second")
    asked = parser.parse_args()
    try:
        link = Link(link_profile(asked.link), asked.seed)
        server = address(asked.to)
        with listen(asked.host, asked.port) as listening:
            uvloop.run(_run(link, server, listening, asked))
    except InfersweepError as error:
        _log(str(error))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
