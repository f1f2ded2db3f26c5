"""What a fleet of profiled servers would answer to a demand: simulated windows, and their spread.

Each window has arrivals and service times of its own, drawn from one start of the profiled server
after the other, so the spread holds both chance and what differs from start to start.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from loadtest.capacity.cameras import CameraReport, report
from loadtest.capacity.scheduler import Balance, Fleet
from loadtest.capacity.service import Times
from loadtest.capacity.simulate import Requests, simulate
from loadtest.confidence import sample_floor
from loadtest.links.model import Direction, Flow, Link
from loadtest.links.profile import LinkProfile
from loadtest.plan.demand import Arrivals, Demand
from loadtest.plan.record import Range
from loadtest.plan.server import Server

WINDOWS = 20
"""Of 20 windows 18 lie between the second and the nineteenth."""
_NS = 1e9
_MOST_REQUESTS = 50_000
_WARM_SHARE = 0.25
_MOST_REPLICAS = 400
"""A larger fleet is cut into shards of at most so many, each with a balancer of its own."""


@dataclass(frozen=True)
class Wire:
    """The link that each camera or client has for itself."""

    profile: LinkProfile
    request_bytes: int
    reply_bytes: int


@dataclass(frozen=True)
class Window:
    """One simulated window.

    Attributes:
        due_ns, response_ns: of what was answered; from due to answered, with the link.
        lost_share: of the requests that were due.
        cameras: of frames; ``None`` where there are no streams.
    """

    due_ns: Times
    response_ns: Times
    lost_share: float
    cameras: CameraReport | None

    def percentile_ms(self, quantile: float) -> float:
        """Nearest rank; infinite where nothing was answered."""
        return percentile_ms(self.response_ns, quantile) if len(self.response_ns) else math.inf


@dataclass
class Predictor:
    """One server under one demand; arrivals are made once and used for every number of replicas.

    Attributes:
        length_s: of a window; ``None`` for what the percentile needs, and else a minute
            or less.
        deadline_ns: after which a frame counts as missed; 0 for none.
    """

    server: Server
    demand: Demand
    quantile: float
    seed: int
    balance: Balance = "least-outstanding"
    wire: Wire | None = None
    deadline_ns: int = 0
    windows: int = WINDOWS
    length_s: float | None = None
    progress: Callable[[str], None] = lambda _: None
    _made: dict[int, tuple[Arrivals, Times]] = field(default_factory=dict)
    _shards: dict[int, Predictor] = field(default_factory=dict)

    @property
    def window_s(self) -> float:
        """Twice what the percentile needs at least; else short enough for a large fleet."""
        if self.length_s is not None:
            return self.length_s
        rate = self.demand.rate_rps
        needed_s = 2 * sample_floor(self.quantile) / rate
        return max(min(60.0, _MOST_REQUESTS / rate), needed_s)

    def predict(self, replicas: int) -> list[Window]:
        """Of a large fleet one shard stands for all: they know nothing of each other.

        Raises:
            UsageError: such a fleet cannot be.
        """
        if replicas > _MOST_REPLICAS:
            shards = -(-replicas // _MOST_REPLICAS)
            return self._shard(shards).predict(replicas // shards)
        found = []
        for number in range(self.windows):
            self.progress(
                f"{self.server.profile.backend}: {replicas} replicas, window {number + 1}"
            )
            arrivals, there_ns = self._arrivals(number)
            found.append(self._window(number, replicas, arrivals, there_ns))
        return found

    def _shard(self, shards: int) -> Predictor:
        if shards not in self._shards:
            demand = self.demand.scaled(1 / shards)
            self._shards[shards] = replace(self, demand=demand, _made={}, _shards={})
        return self._shards[shards]

    def _arrivals(self, number: int) -> tuple[Arrivals, Times]:
        if number not in self._made:
            length_s = self.window_s * (1 + _WARM_SHARE)
            seed = np.random.SeedSequence((self.seed, number))
            arrivals = self.demand.arrivals(length_s, seed)
            self._made[number] = arrivals, self._sent_over(arrivals, number)
        return self._made[number]

    def _link_seed(self, number: int) -> int:
        return (self.seed << 8) + number

    def _sent_over(self, arrivals: Arrivals, number: int) -> Times:
        """When each request has reached the server."""
        if self.wire is None:
            return arrivals.due_ns
        return cross(arrivals, arrivals.due_ns, self.wire, self._link_seed(number), up=True)

    def _window(self, number: int, replicas: int, arrivals: Arrivals, there_ns: Times) -> Window:
        start = self.server.starts[number % len(self.server.starts)]
        fleet = Fleet(
            start.service, self.server.scheduler, replicas, self.balance, self.demand.frames
        )
        order = np.argsort(there_ns, kind="stable")
        streams = None if arrivals.streams is None else arrivals.streams[order]
        seed = np.random.SeedSequence((self.seed, number, 1))
        served = simulate(fleet, there_ns[order], seed, streams=streams)
        done_ns = np.empty_like(there_ns)
        ok = np.empty(len(there_ns), np.bool_)
        done_ns[order], ok[order] = served.done_ns + start.delay_ns, served.ok
        if self.wire is not None:
            done_ns = self._came_back(arrivals, done_ns, ok, number)
        return self._seen(arrivals, done_ns, ok)

    def _came_back(self, arrivals: Arrivals, done_ns: Times, ok: np.ndarray, number: int) -> Times:
        assert self.wire is not None
        answered = np.flatnonzero(ok)[np.argsort(done_ns[ok], kind="stable")]
        streams = None if arrivals.streams is None else arrivals.streams[answered]
        replies = Arrivals(done_ns[answered], streams)
        back_ns = done_ns.copy()
        back_ns[answered] = cross(
            replies, replies.due_ns, self.wire, self._link_seed(number), up=False
        )
        return back_ns

    def _seen(self, arrivals: Arrivals, done_ns: Times, ok: np.ndarray) -> Window:
        """What of it lies in the window, after the queue has filled."""
        due_ns = arrivals.due_ns
        start_ns = int(self.window_s * _WARM_SHARE * _NS)
        end_ns = start_ns + int(self.window_s * _NS)
        inside = (due_ns >= start_ns) & (due_ns < end_ns)
        response_ns = (done_ns - due_ns)[inside & ok]
        lost = 1 - float(ok[inside].mean()) if inside.any() else 0.0
        cameras = None
        if arrivals.streams is not None and len(arrivals.streams):
            seen = _as_requests(arrivals, done_ns, ok)
            count = int(arrivals.streams.max()) + 1
            deadline_ns = self.deadline_ns or None
            cameras = report(seen, count, (start_ns, end_ns), deadline_ns)
        return Window(due_ns[inside & ok], response_ns, lost, cameras)


def cross(arrivals: Arrivals, sent_ns: Times, wire: Wire, seed: int, *, up: bool) -> Times:
    """When messages that leave at ``sent_ns``, ascending, have crossed the link.

    A stream has a link of its own, on which its messages queue; a request of nobody has an empty
    one.
    """
    size = wire.request_bytes if up else wire.reply_bytes
    if arrivals.streams is None:
        way = _way(wire.profile, seed, up=up)
        found = np.empty_like(sent_ns)
        for place, sent in enumerate(sent_ns.tolist()):
            way.free_at_ns = 0
            found[place] = way.carry(Flow(), sent, size)
        return found
    ways: dict[int, tuple[Direction, Flow]] = {}
    found = np.empty_like(sent_ns)
    numbers = arrivals.streams.tolist()
    for place, (sent, stream) in enumerate(zip(sent_ns.tolist(), numbers, strict=True)):
        if stream not in ways:
            ways[stream] = _way(wire.profile, (seed << 20) + stream, up=up), Flow()
        way, flow = ways[stream]
        found[place] = way.carry(flow, sent, size)
    return found


def _way(profile: LinkProfile, seed: int, *, up: bool) -> Direction:
    link = Link(profile, seed)
    return link.uplink if up else link.downlink


def _as_requests(arrivals: Arrivals, done_ns: Times, ok: np.ndarray) -> Requests:
    count = len(done_ns)
    nothing = np.zeros(count, np.int64)
    small = np.zeros(count, np.int32)
    outcome = np.where(ok, 0, 3).astype(np.int8)
    assert arrivals.streams is not None
    return Requests(
        np.arange(count), arrivals.due_ns, nothing, done_ns, small, arrivals.streams, small, outcome
    )


def percentile_ms(times_ns: Times, quantile: float) -> float:
    """Nearest rank of times in any order, of which there must be one."""
    rank = max(math.ceil(quantile * len(times_ns)), 1)
    return float(np.partition(times_ns, rank - 1)[rank - 1]) / 1e6


def range_of(values: Sequence[float]) -> Range:
    """Median, and what all but a tenth lie between: of 20 values the second and the nineteenth."""
    ordered = sorted(values)
    cut = len(ordered) // 20
    middle = float(np.median(ordered))
    return Range(value=middle, low=ordered[cut], high=ordered[-1 - cut])
