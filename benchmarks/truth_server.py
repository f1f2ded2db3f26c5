"""A server whose service times are known: it logs when each request came and when it was answered.

It answers every POST with the same bytes, after a time drawn from a seeded distribution. Requests
do not queue: all are in service at once. The clock is ``time.monotonic_ns``, which all processes of
a machine share, so the log can be laid beside what a load generator has recorded.

It spins while any request is in service, so it needs a CPU of its own.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import heapq
import math
import random
import signal
import sys
import time
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import cast

import httptools
import numpy as np
import numpy.typing as npt
import uvloop

from serving.protocol import HEADER_LENGTH

DISTRIBUTIONS = ("constant", "lognormal", "bimodal", "stalls")
_READY = b'{"name":"truth","versions":["1"],"live":true,"ready":true}'


@dataclass(frozen=True)
class Service:
    """How long requests take.

    Attributes:
        mean_ms: of every distribution, stalls left out.
        sigma: of a lognormal time's logarithm.
        slow_ms: the slow mode of ``bimodal``; ``slow_share`` of the requests take so long.
        stall_every_s: from the start of one stall to the next; the first ends after this time.
        stall_s: for so long nothing is answered; what has come meanwhile is answered after it.
        serial: one request in service at a time, the others queue.
    """

    distribution: str
    mean_ms: float = 5.0
    sigma: float = 0.5
    slow_ms: float = 50.0
    slow_share: float = 0.02
    stall_every_s: float = 3.0
    stall_s: float = 0.3
    serial: bool = False

    def __post_init__(self) -> None:
        if self.distribution == "bimodal" and self._fast_ms <= 0:
            raise ValueError(f"slow requests alone make the mean more than {self.mean_ms} ms")

    def times_ns(self, seed: int) -> Iterator[int]:
        """Service times in the order of arrival; the same for the same seed."""
        rng = random.Random(seed)
        mu = math.log(self.mean_ms) - self.sigma**2 / 2
        while True:
            time_ms = self.mean_ms
            if self.distribution == "lognormal":
                time_ms = rng.lognormvariate(mu, self.sigma)
            elif self.distribution == "bimodal":
                time_ms = self.slow_ms if rng.random() < self.slow_share else self._fast_ms
            yield round(time_ms * 1e6)

    @property
    def _fast_ms(self) -> float:
        return (self.mean_ms - self.slow_share * self.slow_ms) / (1 - self.slow_share)

    def is_stalled(self, since_start_ns: int) -> bool:
        if self.distribution != "stalls":
            return False
        phase_ns = since_start_ns % round(self.stall_every_s * 1e9)
        return phase_ns >= (self.stall_every_s - self.stall_s) * 1e9


class Desk:
    """Requests in service, by the time at which each is due, and the log of those answered."""

    def __init__(self, service: Service, seed: int, reply: bytes) -> None:
        self._service = service
        self._times_ns = service.times_ns(seed)
        self._reply = reply
        self._loop = asyncio.get_running_loop()
        self._start_ns = time.monotonic_ns()
        self._number = 0
        self._free_ns = 0
        self._waiting: list[tuple[int, int, int, asyncio.WriteTransport]] = []
        self._log = array("q")

    def take(self, transport: asyncio.WriteTransport) -> None:
        """Call when a request is whole."""
        arrival_ns = time.monotonic_ns()
        self._number += 1
        if not self._waiting:
            self._loop.call_soon(self._spin)
        # The number settles ties: transports have no order.
        begun_ns = max(arrival_ns, self._free_ns) if self._service.serial else arrival_ns
        self._free_ns = begun_ns + next(self._times_ns)
        heapq.heappush(self._waiting, (self._free_ns, self._number, arrival_ns, transport))

    def log(self) -> npt.NDArray[np.int64]:
        """One row per reply, in the order of the replies: arrival, reply; monotonic ns."""
        return np.array(self._log, np.int64).reshape(-1, 2)

    def _spin(self) -> None:
        # Timers of the loop have steps of 1 ms, as long as a whole service time may be.
        now_ns = time.monotonic_ns()
        stalled = self._service.is_stalled(now_ns - self._start_ns)
        # One reply a turn: the loop sends it at the turn's end and then looks for new requests, so
        # that neither waits for a crowd of other replies.
        if self._waiting[0][0] <= now_ns and not stalled:
            _, _, arrival_ns, transport = heapq.heappop(self._waiting)
            if not transport.is_closing():
                self._log.extend((arrival_ns, time.monotonic_ns()))
                transport.write(self._reply)
        if self._waiting:
            self._loop.call_soon(self._spin)


class Connection(asyncio.Protocol):
    """One client, without pipelining. Method names are asyncio's and httptools's."""

    def __init__(self, desk: Desk, page: bytes) -> None:
        self._desk = desk
        self._page = page
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's classes.
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_complete(self) -> None:
        if self._parser.get_method() == b"POST":
            self._desk.take(self._transport)
        else:
            self._transport.write(self._page)


def _http(kind: str, body: bytes, headers: str = "") -> bytes:
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return f"{head}{headers}\r\n".encode() + body


async def _serve(asked: argparse.Namespace, service: Service) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    length = asked.reply_header_length
    header = "" if length is None else f"{HEADER_LENGTH}: {length}\r\n"
    kind = "application/json" if length is None else "application/octet-stream"
    desk = Desk(service, asked.seed, _http(kind, asked.reply.read_bytes(), header))
    page = _http("application/json", asked.page.read_bytes() if asked.page else _READY)
    # A pause of the collector would keep requests waiting before they are seen, so outside the log.
    gc.disable()
    server = await loop.create_server(
        lambda: Connection(desk, page), asked.host, asked.port, backlog=1024
    )
    await stopping.wait()
    server.close()
    with asked.log.open("wb") as file:
        np.save(file, desk.log())


def main() -> int:
    default = Service("constant")
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.truth_server",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--distribution", choices=DISTRIBUTIONS, required=True)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--mean-ms", type=float, default=default.mean_ms)
    parser.add_argument("--sigma", type=float, default=default.sigma)
    parser.add_argument("--slow-ms", type=float, default=default.slow_ms)
    parser.add_argument("--slow-share", type=float, default=default.slow_share)
    parser.add_argument("--stall-every-s", type=float, default=default.stall_every_s)
    parser.add_argument("--stall-s", type=float, default=default.stall_s)
    parser.add_argument("--serial", action="store_true", help="one request at a time")
    parser.add_argument("--reply", type=Path, required=True, help="body of every answer")
    parser.add_argument("--reply-header-length", type=int, help=f"value of {HEADER_LENGTH}")
    parser.add_argument("--page", type=Path, help="body of the answer to every GET: JSON")
    parser.add_argument("--log", type=Path, required=True, help=".npy: arrival_ns, reply_ns")
    asked = parser.parse_args()
    try:
        service = Service(**{one.name: getattr(asked, one.name) for one in fields(Service)})
    except ValueError as error:
        parser.error(str(error))
    uvloop.run(_serve(asked, service))
    return 0


if __name__ == "__main__":
    sys.exit(main())
