"""Is a link what its profile says? Delay from small messages, rates from bulk transfers.

The far end of the link is a ``Peer``; it works over a relay as over any other link.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from loadtest.links.peer import ASKED, BLOCK, ECHO, SINK, SOURCE, TOOK, Peer, send, take, whole
from loadtest.links.profile import LinkProfile, link_profile
from loadtest.links.relay import chunk_bytes
from loadtest.links.running import running_link
from serving.errors import InfersweepError, ServerError

TOLERANCE = 0.05
PING_BYTES = 64
_TIMEOUT_S = 60.0
_FEWEST_PINGS = 31
_STANDARD_ERROR = 0.015


@dataclass(frozen=True)
class Measured:
    """What was seen: the median one-way delay, and the median rates of bulk transfers."""

    one_way_delay_ms: float
    uplink_bps: float
    downlink_bps: float


@dataclass(frozen=True)
class Comparison:
    name: str
    expected: float
    measured: float

    @property
    def off_share(self) -> float:
        """By which share of it the measured value is above (or, negative, below) the expected."""
        return self.measured / self.expected - 1

    @property
    def holds(self) -> bool:
        return abs(self.off_share) <= TOLERANCE

    def __str__(self) -> str:
        verdict = "within" if self.holds else "NOT within"
        return (
            f"{self.name}: {self.measured:.4g}, profile {self.expected:.4g}, "
            f"{self.off_share:+.1%}: {verdict} {TOLERANCE:.0%}"
        )


def compare(profile: LinkProfile, measured: Measured) -> tuple[Comparison, ...]:
    """Each measured value beside the profile's, but for a delay of 0, which nothing meets; pure."""
    return tuple(
        Comparison(name, getattr(profile, name), getattr(measured, name))
        for name in ("one_way_delay_ms", "uplink_bps", "downlink_bps")
        if getattr(profile, name)
    )


def one_way_delay_ms(profile: LinkProfile, round_trips_s: Sequence[float]) -> float:
    """Half the median round trip of pings, less the time that their bytes take at the rates."""
    bytes_s = PING_BYTES * 8 * (1 / profile.uplink_bps + 1 / profile.downlink_bps)
    return (median(round_trips_s) - bytes_s) / 2 * 1e3


def pings_for(profile: LinkProfile) -> int:
    """How many pings give the median to a standard error of 1.5% of the delay, 31 at least.

    Half of two uniform jitters has the standard deviation jitter / sqrt(6); a median needs pi/2
    times as many values as a mean.
    """
    deviation = profile.jitter_ms / math.sqrt(6)
    if not deviation:
        return _FEWEST_PINGS
    needed = math.pi / 2 * (deviation / (_STANDARD_ERROR * profile.one_way_delay_ms)) ** 2
    return max(math.ceil(needed), _FEWEST_PINGS)


def measure(
    profile: LinkProfile,
    link: str,
    *,
    pings: int,
    transfer_s: float = 0.5,
    transfers: int = 3,
) -> Measured:
    """Through the link at ``HOST:PORT``, behind which a ``Peer`` answers.

    Raises:
        ServerError: nothing answers.
    """
    host, _, port = link.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), timeout=_TIMEOUT_S) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # The first waits for the handshake too.
            trips = [_ping(connection) for _ in range(pings + 1)][1:]
            rates = {
                kind: median(_rate(connection, kind, bps, transfer_s) for _ in range(transfers))
                for kind, bps in ((SINK, profile.uplink_bps), (SOURCE, profile.downlink_bps))
            }
    except OSError as error:
        raise ServerError(
            f"the link at {link} does not answer: {error}", hint="Is its far end up?"
        ) from None
    return Measured(one_way_delay_ms(profile, trips), rates[SINK], rates[SOURCE])


def _ping(connection: socket.socket) -> float:
    """Seconds of one round trip of ``PING_BYTES``, the header among them."""
    body = BLOCK[: PING_BYTES - ASKED.size]
    start = time.perf_counter()
    connection.sendall(ASKED.pack(ECHO, len(body)) + body)
    whole(connection, PING_BYTES)
    return time.perf_counter() - start


def _rate(connection: socket.socket, kind: bytes, bps: float, transfer_s: float) -> float:
    """Bits per second of a transfer that should take about ``transfer_s``."""
    count = max(int(bps / 8 * transfer_s), 8 * chunk_bytes(bps))
    connection.sendall(ASKED.pack(kind, count))
    if kind == SINK:
        send(connection, count)
        taken, took_ns = TOOK.unpack(whole(connection, TOOK.size))
    else:
        taken, took_ns = take(connection, count)
    return float(taken) * 8e9 / float(took_ns)


def check(link: str, *, seed: int = 0) -> tuple[Comparison, ...]:
    """A relay of this profile on loopback, measured and compared.

    Raises:
        UsageError: there is no such profile.
        ServerError: the relay did not start or does not answer.
    """
    profile = link_profile(link)
    with tempfile.TemporaryDirectory(prefix="infersweep-") as name, Peer() as peer:
        log = Path(name) / "relay.log"
        with running_link(link, peer.address, log=log, seed=seed) as relay:
            return compare(profile, measure(profile, relay.address, pings=pings_for(profile)))


def over(link: str, address: str) -> tuple[Comparison, ...]:
    """Any link to a ``Peer`` at ``address``, compared with this profile.

    Raises:
        UsageError: there is no such profile.
        ServerError: nothing answers.
    """
    profile = link_profile(link)
    return compare(profile, measure(profile, address, pings=pings_for(profile)))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.links.check")
    parser.add_argument("link", help="a named profile, or a TOML or JSON file")
    parser.add_argument("--seed", type=int, default=0, help="of the relay that is checked")
    parser.add_argument("--over", help="HOST:PORT of a far end, in place of a relay")
    parser.add_argument("--answer", metavar="HOST", help="be the far end at this address")
    asked = parser.parse_args()
    try:
        if asked.answer:
            with Peer(asked.answer) as peer:
                print(peer.address, flush=True)  # noqa: T201
                with contextlib.suppress(KeyboardInterrupt):
                    threading.Event().wait()
            return 0
        found = over(asked.link, asked.over) if asked.over else check(asked.link, seed=asked.seed)
    except InfersweepError as error:
        print(error, file=sys.stderr)  # noqa: T201  (this is a command)
        return error.exit_code
    print("\n".join(map(str, found)))  # noqa: T201
    return 0 if all(each.holds for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
