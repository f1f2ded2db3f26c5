"""Textbook waits and throughputs, beside the simulation: to check it, and to screen before it.

Rates in requests per second, times in seconds; each wait is the mean time in the queue, without
service, of a queue that never fills. At or above full load there is none: UsageError.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import least_squares

from loadtest.capacity.service import ServiceSamples
from serving.errors import UsageError

Floats = npt.NDArray[np.float64]

_NS = 1e9
_FEWEST_POINTS = 4
"""Three unknowns fit any three points; the fourth can disagree."""


def mm1_wait_s(rate_rps: float, service_s: float) -> float:
    """Kleinrock, *Queueing Systems* vol. 1, 1975, 3.2: rho S / (1 - rho)."""
    load = _load(rate_rps, service_s, 1)
    return load * service_s / (1 - load)


def md1_wait_s(rate_rps: float, service_s: float) -> float:
    """Half of M/M/1's, by Pollaczek-Khinchine with no variance."""
    return mg1_wait_s(rate_rps, service_s, 0.0)


def mg1_wait_s(rate_rps: float, service_s: float, squared_variation: float) -> float:
    """Pollaczek-Khinchine (Kleinrock, *Queueing Systems* vol. 1, 1975, 5.6).

    ``squared_variation`` of the service times: variance over squared mean; 1 is exponential.
    """
    load = _load(rate_rps, service_s, 1)
    return load * service_s / (1 - load) * (1 + squared_variation) / 2


def erlang_c(rate_rps: float, service_s: float, servers: int) -> float:
    """Probability that a request must wait in M/M/c (Erlang, 1917), from Erlang B's recursion.

    Source: Cooper, *Introduction to Queueing Theory*, 1981, 3.4.
    """
    load = _load(rate_rps, service_s, servers)
    offered = rate_rps * service_s
    blocked = 1.0
    for number in range(1, servers + 1):
        blocked = offered * blocked / (number + offered * blocked)
    return blocked / (1 - load * (1 - blocked))


def mmc_wait_s(rate_rps: float, service_s: float, servers: int) -> float:
    """C(c, a) S / (c - a) with the offered load a (Kleinrock, vol. 1, 1975, 3.5)."""
    waiting = erlang_c(rate_rps, service_s, servers)
    return waiting * service_s / (servers - rate_rps * service_s)


def allen_cunneen_wait_s(
    rate_rps: float,
    service_s: float,
    servers: int,
    *,
    arrivals_squared_variation: float,
    service_squared_variation: float,
) -> float:
    """Mean wait of G/G/c, an approximation: M/M/c's times (ca^2 + cs^2) / 2.

    Source: Allen, *Probability, Statistics, and Queueing Theory*, 1990, 5.6; exact for M/M/c and
    M/G/1.
    """
    variation = (arrivals_squared_variation + service_squared_variation) / 2
    return mmc_wait_s(rate_rps, service_s, servers) * variation


def batch_capacity_rps(service: ServiceSamples, max_batch_size: int, instances: int) -> float:
    """No queue of batches answers more: the best size's requests over its mean time, per instance.

    Below this rate a batch-service queue that takes up to the largest batch is stable (Bailey, *On
    queueing processes with bulk service*, 1954), where that size is the best one.

    Raises:
        UsageError: ``max_batch_size`` is above all measured ones.
    """
    sizes = range(1, max_batch_size + 1)
    return instances * max(size / service.mean_ns(size) * _NS for size in sizes)


def batch_response_bound_s(rate_rps: float, per_request_s: float, per_batch_s: float) -> float:
    """Upper bound on the mean response time of one instance that takes all who wait at once.

    Poisson arrivals, a batch of b takes ``per_batch_s`` + b ``per_request_s``, no limit on its
    size, no delay. Source: Inoue, *Queueing analysis of GPU-based inference servers with dynamic
    batching*, Performance Evaluation 147, 2021; close to the mean where load is high.
    """
    load = _load(rate_rps, per_request_s, 1)
    idle = rate_rps * per_batch_s
    low = (per_request_s + per_batch_s) / (2 * (1 - load))
    low *= 1 + 2 * idle + (1 - idle) / (1 + load)
    high = 1.5 * per_batch_s / (1 - load) + per_request_s / 2 * (load + 2) / (1 - load**2)
    return min(low, high)


def linear_batch_s(service: ServiceSamples) -> tuple[float, float]:
    """Seconds per request and per batch, by least squares on the mean of each measured size.

    Raises:
        UsageError: fewer than two sizes were measured.
    """
    sizes = sorted(service.per_batch)
    if len(sizes) < 2:
        raise UsageError(
            "one batch size tells nothing of another", hint="Measure at least two batch sizes."
        )
    per_request, per_batch = np.polyfit(sizes, [service.mean_ns(size) for size in sizes], 1)
    return float(per_request) / _NS, float(per_batch) / _NS


@dataclass(frozen=True)
class Scalability:
    """Throughput X(N) = rate N / (1 + contention (N - 1) + coherency N (N - 1)).

    Source: the Universal Scalability Law, Gunther, *Guerrilla Capacity Planning*, 2007, 4.

    Attributes:
        rate_rps: throughput at concurrency 1.
        measured: smallest and largest concurrency that it was fitted to.
        error: largest relative distance from a measured throughput.
    """

    rate_rps: float
    contention: float
    coherency: float
    measured: tuple[float, float]
    error: float

    def throughput_rps(self, concurrency: float) -> float:
        """Raises: UsageError: outside of what was measured."""
        low, high = self.measured
        if not low <= concurrency <= high:
            raise UsageError(
                f"concurrency {concurrency:g} is outside of the measured {low:g} to {high:g}",
                hint="Measure there too; the law is not carried further.",
            )
        return float(_usl(np.array([concurrency]), *self._parameters)[0])

    @property
    def peak(self) -> float | None:
        """Concurrency of the highest throughput; ``None`` where that was not measured."""
        if not self.coherency or self.contention >= 1:
            return None
        found = math.sqrt((1 - self.contention) / self.coherency)
        return found if self.measured[0] <= found <= self.measured[1] else None

    @property
    def _parameters(self) -> tuple[float, float, float]:
        return self.rate_rps, self.contention, self.coherency


def fit_scalability(throughput_rps: Mapping[float, float]) -> Scalability:
    """Least squares on the relative errors of measured throughputs, by concurrency.

    No parameter may be negative.

    Raises:
        UsageError: fewer than four concurrencies, or a throughput that is not above 0.
    """
    if len(throughput_rps) < _FEWEST_POINTS or min(throughput_rps.values()) <= 0:
        raise UsageError(
            f"a scalability law from {len(throughput_rps)} points",
            hint=f"Measure throughput at {_FEWEST_POINTS} or more concurrencies.",
        )
    users = np.array(sorted(throughput_rps), float)
    measured = np.array([throughput_rps[one] for one in sorted(throughput_rps)], float)

    def errors(parameters: Sequence[float]) -> Floats:
        off: Floats = _usl(users, *parameters) / measured - 1
        return off

    first = float(np.max(measured / users))
    found = least_squares(
        errors,
        (first, 0.05, 0.001),
        bounds=(0.0, np.inf),
        x_scale=(first, 0.1, 0.01),
        ftol=1e-12,
        xtol=1e-12,
        gtol=1e-12,
    )
    rate_rps, contention, coherency = (float(value) for value in found.x)
    span = float(users[0]), float(users[-1])
    worst = float(np.abs(errors(found.x)).max())
    return Scalability(rate_rps, contention, coherency, span, worst)


def _usl(users: Floats, rate_rps: float, contention: float, coherency: float) -> Floats:
    slowed = 1 + contention * (users - 1) + coherency * users * (users - 1)
    throughput_rps: Floats = rate_rps * users / slowed
    return throughput_rps


def _load(rate_rps: float, service_s: float, servers: int) -> float:
    """Utilisation. Raises: UsageError: at 1 or above, where the queue grows without an end."""
    load = rate_rps * service_s / servers
    if not 0 < load < 1:
        raise UsageError(
            f"utilisation {load:.3g}, where a queue has no mean wait",
            hint="Give a rate above 0 and below what the servers can answer.",
        )
    return load
