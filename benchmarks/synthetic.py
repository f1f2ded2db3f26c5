"""Servers that exist as a formula only, for asking how many probes a search takes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from loadtest.searched import ProbeVerdict
from loadtest.slo.bracket import Windows
from loadtest.slo.search import Scope, Search

WINDOWS = Windows(5.0, 60.0)


@dataclass(frozen=True)
class SyntheticServer:
    """A tail that grows with the rate.

    Attributes:
        capacity_rps: where the queue grows without an end.
        service_s: the tail of one request alone.
        waiting_s: the tail of the wait, times one less than ``1 / (1 - utilisation)``.
        noise: standard deviation of the logarithm of what is measured.
        guess: the first probe's rate over the capacity.
        ceiling_rps: the generator's end.
        void: share of the probes that fail for another reason.
    """

    capacity_rps: float
    service_s: float
    waiting_s: float
    noise: float = 0.0
    guess: float = 0.7
    ceiling_rps: float = math.inf
    void: float = 0.0

    def tail_s(self, rate_rps: float) -> float:
        """M/M/1's shape."""
        if rate_rps >= self.capacity_rps:
            return math.inf
        utilisation = rate_rps / self.capacity_rps
        return self.service_s + self.waiting_s * utilisation / (1 - utilisation)

    def crossing_rps(self, limit_s: float) -> float:
        """Where the tail reaches the limit; 0 when it is above it at any rate."""
        room = (limit_s - self.service_s) / self.waiting_s
        return self.capacity_rps * room / (1 + room) if room > 0 else 0.0

    def probe(self, rate_rps: float, limit_s: float, rng: Random) -> ProbeVerdict:
        if rng.random() < self.void:
            return "void"
        measured_s = self.tail_s(rate_rps) * math.exp(rng.gauss(0.0, self.noise))
        return "met" if measured_s <= limit_s else "missed"


def searched(server: SyntheticServer, limit_s: float, needed: int, rng: Random) -> Search:
    """A whole search for the highest rate whose tail is at most ``limit_s``.

    ``needed`` is the fewest samples of one window.
    """
    scope = Scope(
        first_rps=server.guess * server.capacity_rps,
        lowest_rps=WINDOWS.lowest_rps(needed),
        highest_rps=server.ceiling_rps,
        hopeless=server.service_s > limit_s,
    )
    search = Search(scope)
    while search.next_rps is not None:
        search = search.told(server.probe(search.next_rps, limit_s, rng))
    return search


def probes(server: SyntheticServer, limit_s: float, needed: int = 459, seed: int = 1) -> int:
    """How many probes a search takes."""
    return len(searched(server, limit_s, needed, Random(seed)).path)


def population(count: int, seed: int) -> Iterator[tuple[SyntheticServer, float]]:
    """Servers of 20 to 20,000 requests/s with an objective each; most of them can meet it."""
    rng = Random(seed)
    for _ in range(count):
        capacity_rps = 10 ** rng.uniform(1.3, 4.3)
        service_s = rng.uniform(1.0, 8.0) / capacity_rps
        server = SyntheticServer(
            capacity_rps,
            service_s,
            waiting_s=rng.uniform(0.5, 5.0) / capacity_rps,
            noise=rng.choice((0.0, 0.02, 0.05, 0.1)),
            guess=min(max(rng.gauss(0.65, 0.25), 0.1), 0.9),
            ceiling_rps=rng.choice((math.inf, 1.5 * capacity_rps, 0.5 * capacity_rps)),
            void=rng.choice((0.0, 0.0, 0.05)),
        )
        yield server, service_s * rng.choice((0.8, 1.05, 1.3, 2.0, 4.0, 10.0))
