"""How long bytes take over a link: a bottleneck, a delay, losses and outages. Pure.

Each direction has one bottleneck, first in, first out, that all connections share. What has passed
it arrives after the delay, and never before what its connection sent earlier: TCP keeps the order.
A lost segment is late by a retransmission, and all behind it on its connection wait for it, while
the bottleneck works on. Not modelled: congestion windows, and the loss of a retransmission.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from loadtest.links.profile import LinkProfile, Outages

SEGMENT_BYTES = 1448
"""Of a TCP segment on Ethernet: 1500 less 20 of IP, 20 of TCP and 12 of its timestamps."""
_DUPLICATE_ACKS = 3
"""That many segments must follow a lost one until it is sent again at once: RFC 5681, 3.2."""


@dataclass
class Flow:
    """One direction of one connection; ``arrived_ns`` is when its last byte arrives."""

    arrived_ns: int = 0


class OutageClock:
    """When the link is up; one for both directions. Times are ns from the link's start."""

    def __init__(self, outages: Outages, seed: str) -> None:
        self._coming = _outages_ns(outages, random.Random(f"{seed}/outages"))
        self._starts: list[int] = []
        self._ends: list[int] = []

    def after(self, start_ns: int, work_ns: int) -> int:
        """When work that starts at ``start_ns`` and rests in outages is done."""
        at, left = start_ns, work_ns
        while True:
            following = self._next(at)
            if following is None:
                return at + left
            begins, ends = following
            if begins > at:
                # Work that ends at the moment an outage begins has passed.
                if at + left <= begins:
                    return at + left
                left -= begins - at
            at = ends

    def _next(self, at_ns: int) -> tuple[int, int] | None:
        """The outage that lasts at ``at_ns``, or the first after it."""
        while not self._ends or self._ends[-1] <= at_ns:
            coming = next(self._coming, None)
            if coming is None:
                return None
            self._starts.append(coming[0])
            self._ends.append(coming[1])
        index = bisect_right(self._ends, at_ns)
        return self._starts[index], self._ends[index]


def _outages_ns(outages: Outages, generator: random.Random) -> Iterator[tuple[int, int]]:
    """Start and end of one after the other."""
    for start_s, length_s in outages.periods_s:
        yield round(start_s * 1e9), round((start_s + length_s) * 1e9)
    if outages.mean_between_s is None or outages.mean_length_s is None:
        return
    at_s = 0.0
    while True:
        start_s = at_s + generator.expovariate(1 / outages.mean_between_s)
        at_s = start_s + generator.expovariate(1 / outages.mean_length_s)
        yield round(start_s * 1e9), round(at_s * 1e9)


class Direction:
    """The uplink or the downlink; moments are ns from the link's start."""

    def __init__(
        self, profile: LinkProfile, rate_bps: float, outages: OutageClock, seed: str
    ) -> None:
        self._delay_ns = profile.one_way_delay_ms * 1e6
        self._jitter_ns = profile.jitter_ms * 1e6
        self._loss_share = profile.loss_share
        self._fast_ns = round(profile.fast_stall_ms * 1e6)
        self._timeout_ns = round(profile.timeout_stall_ms * 1e6)
        self._ns_per_byte = 8e9 / rate_bps
        self._outages = outages
        self._generator = random.Random(seed)
        self.free_at_ns = 0

    def carry(self, flow: Flow, sent_ns: int, size_bytes: int, *, more: bool = False) -> int:
        """When the last of ``size_bytes`` arrives; called in the order of ``sent_ns``.

        ``more``: bytes follow at once, so that a lost segment is noticed without a timeout.
        Without bytes (a connection's opening or end) nothing queues at the bottleneck.
        """
        starts = max(sent_ns, self.free_at_ns) if size_bytes else sent_ns
        passed = self._outages.after(starts, round(size_bytes * self._ns_per_byte))
        if size_bytes:
            self.free_at_ns = passed
        spread = self._generator.uniform(-self._jitter_ns, self._jitter_ns)
        delay_ns = round(self._delay_ns + spread)
        late = self._repaired(starts, size_bytes, more=more)
        flow.arrived_ns = max(flow.arrived_ns, max(passed, late) + delay_ns)
        return flow.arrived_ns

    def _repaired(self, starts_ns: int, size_bytes: int, *, more: bool) -> int:
        """When the last repaired segment has passed the bottleneck; 0 where none was lost."""
        if not self._loss_share or not size_bytes:
            return 0
        segments = math.ceil(size_bytes / SEGMENT_BYTES)
        latest = 0
        for index in self._lost(segments):
            first_passed = self._outages.after(
                starts_ns,
                round(min((index + 1) * SEGMENT_BYTES, size_bytes) * self._ns_per_byte),
            )
            fast = more or segments - 1 - index >= _DUPLICATE_ACKS
            latest = max(latest, first_passed + (self._fast_ns if fast else self._timeout_ns))
        return self._outages.after(latest, 0) if latest else 0

    def _lost(self, segments: int) -> Iterator[int]:
        """Which are lost; the gaps between losses are geometric."""
        index = -1
        scale = math.log1p(-self._loss_share)
        while True:
            gap = math.log(1.0 - self._generator.random()) / scale
            if gap >= segments - 1 - index:
                return
            index += 1 + int(gap)
            yield index


@dataclass
class Link:
    """Both directions of one link, from one seed."""

    profile: LinkProfile
    seed: int = 0
    uplink: Direction = field(init=False)
    downlink: Direction = field(init=False)

    def __post_init__(self) -> None:
        outages = OutageClock(self.profile.outages, f"{self.seed}")
        self.uplink = Direction(
            self.profile, self.profile.uplink_bps, outages, f"{self.seed}/uplink"
        )
        self.downlink = Direction(
            self.profile, self.profile.downlink_bps, outages, f"{self.seed}/downlink"
        )


def link_of_connection(link: Link, number: int) -> Link:
    """One like it with a seed of its own: a device with its own modem."""
    return Link(link.profile, random.Random(f"{link.seed}/{number}").getrandbits(63))


def arrivals_ns(direction: Direction, messages: Iterable[tuple[int, int]]) -> Iterator[int]:
    """When messages of (sent at ns, bytes), in the order of sending, arrive; a connection each."""
    for sent_ns, size_bytes in messages:
        yield direction.carry(Flow(), sent_ns, size_bytes)


def message_time_ns(direction: Direction, size_bytes: int) -> int:
    """How long one message takes over a link that carries nothing else."""
    start = direction.free_at_ns
    return direction.carry(Flow(), start, size_bytes) - start
