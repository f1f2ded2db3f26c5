"""One profiled server as the simulation takes it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from loadtest.capacity.scheduler import Scheduler
from loadtest.capacity.service import ServiceSamples
from loadtest.profiles.record import Profile, SweepPoint
from loadtest.profiles.scheduling import Scheduling, scheduling_of

_NS = 1e9


@dataclass(frozen=True)
class Start:
    """What one start of the server showed.

    Attributes:
        delay_ns: what a request takes besides its service: the way, wake-ups. Nobody waits for it.
    """

    service: ServiceSamples
    delay_ns: int


@dataclass(frozen=True)
class Server:
    """Attributes: ``starts``, one per repeat of the profile: the machine differs between them."""

    profile: Profile
    scheduler: Scheduler
    starts: tuple[Start, ...]

    @classmethod
    def of(cls, profile: Profile) -> Server:
        """Raises: InfersweepError: the profile has no samples of batches that it would serve."""
        scheduling = scheduling_of(profile.backend, profile.configuration)
        scheduler = scheduler_of(scheduling)
        # A lone request waits for company as long as any; that is simulated too.
        queued_ns = 0 if scheduler.leaving(1) else scheduler.max_queue_delay_ns
        starts = []
        for repeat in profile.repeats:
            measured = ServiceSamples.of(repeat.service_ns)
            found_ns = repeat.delay_ns
            if found_ns is None:
                found_ns = round(float(np.mean(repeat.alone_ns)) - measured.mean_ns(1))
            delay_ns = max(found_ns - queued_ns, 0)
            idle_ns = np.array(repeat.idle_ns, np.int64) - delay_ns - queued_ns
            service = measured.filled(scheduling.largest).after_rest(idle_ns)
            starts.append(Start(service, delay_ns))
        return cls(profile, scheduler, tuple(starts))

    @property
    def saturated_rps(self) -> float:
        """What full batches come to; above it every queue grows."""
        largest = self.scheduler.max_batch_size
        sizes = range(1, largest + 1)
        rates = [
            max(size / start.service.mean_ns(size) for size in sizes) * _NS for start in self.starts
        ]
        return float(np.median(rates)) * self.scheduler.instances

    def quickest_ms(self, quantile: float) -> float:
        """The quantile of the response times of one user alone: no plan can be below it."""
        alone = np.concatenate([repeat.alone_ns for repeat in self.profile.repeats])
        return float(np.quantile(alone, quantile)) / 1e6


def scheduler_of(scheduling: Scheduling) -> Scheduler:
    queue = scheduling.queue
    return Scheduler(
        max_batch_size=scheduling.largest,
        preferred_batch_sizes=scheduling.preferred,
        max_queue_delay_ns=scheduling.delay_ns,
        instances=scheduling.instances,
        max_queue_size=queue.max_size,
        timeout_ns=queue.timeout_ns,
        reject=queue.reject,
    )


@dataclass(frozen=True)
class Usable:
    """What a sweep says of one server under an objective.

    Attributes:
        usable_rps: the highest rate of a point that meets it; ``None`` where none does.
        peak_rps: of all points that may be believed.
        smallest_ms: the lowest value of the percentile at any of these points.
    """

    usable_rps: float | None
    peak_rps: float
    smallest_ms: float | None


def usable_of(
    points: tuple[SweepPoint, ...], percentile: str, limit_ms: float, most_failed: float
) -> Usable:
    """By the points that are VALID and fail no more than allowed; never between or beyond them.

    A percentile that is only known to be at least a time limit says nothing.
    """
    field = percentile.replace(".", "_")
    told = [
        (point.requests_per_s, quantile.value_ms)
        for point in points
        if point.verdict == "VALID"
        and point.failed_share <= most_failed
        and (quantile := getattr(point.response_time_ms, field)) is not None
        and not quantile.at_least
    ]
    within = [rate for rate, value_ms in told if value_ms <= limit_ms]
    return Usable(
        max(within, default=None),
        max((rate for rate, _ in told), default=0.0),
        min((value_ms for _, value_ms in told), default=None),
    )


def replicas_for(rate_rps: float, usable_rps: float, headroom: float) -> int:
    """``rate / (usable (1 - headroom))``, rounded up; a whole quotient is not rounded further."""
    return max(int(np.ceil(rate_rps / (usable_rps * (1 - headroom)) - 1e-9)), 1)
