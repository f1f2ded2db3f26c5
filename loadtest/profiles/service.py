"""From the ends of requests to how long batches occupied an instance. Pure; times in ns.

In a closed loop with more users than a batch has rows an instance never rests: it takes the next
batch when the one before is done, and the replies of a batch leave together. So the time from the
end of one batch to the end of the next is what a batch costs, with all that the server does beside
it on the same CPUs: reading requests, joining rows, writing replies. Of several instances, which
join nothing here, each takes the oldest request when it is free, which tells when that was.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

Times = npt.NDArray[np.int64]

FEWEST = 20
"""Samples of a batch size; with fewer it counts as not measured."""
_BLUR = (0.2, 0.8)
"""Gaps between these shares of the shortest service are neither within a batch nor between two."""
_MOST_BLURRED = 0.02


@dataclass(frozen=True)
class Loop:
    """One closed loop and its right answers, in any order.

    Attributes:
        due_ns: when each request was due, which is when the user's last one was answered.
        done_ns: when its answer was whole.
    """

    users: int
    due_ns: Times
    done_ns: Times


@dataclass(frozen=True)
class OpenLoop:
    """One window of Poisson arrivals and its right answers, in any order."""

    due_ns: Times
    done_ns: Times


@dataclass(frozen=True)
class Service:
    """What the windows told.

    Attributes:
        times_ns: from batch size to the times for which such a batch occupied an instance.
        idle_ns: response times of requests that found an instance idle.
        blurred: share of all gaps that may lie within a batch or between two; of several
            instances the share of requests that were not served in the order in which they came.
    """

    times_ns: Mapping[int, Times]
    blurred: float
    idle_ns: Times = field(default_factory=lambda: np.zeros(0, np.int64))

    @property
    def clear(self) -> bool:
        return self.blurred <= _MOST_BLURRED


def service_of(loops: list[Loop], *, instances: int, largest: int) -> Service:
    """The service times of every batch size that was seen often enough.

    ``largest`` is 1 where the server joins nothing, as it must with several instances. Loops of so
    few users that an instance may rest are left out. The loop of two users has batches of one row
    alone, and tells how short a service can be; without it no batches are found.
    """
    busy = [loop for loop in loops if loop.users > instances and len(loop.done_ns) > 1]
    if largest == 1:
        return _one_by_one(busy, instances)
    single = [loop for loop in busy if loop.users == 2]
    if instances > 1 or not single:
        return Service({}, 0.0)
    shortest_ns = float(np.quantile(_gaps(np.sort(single[0].done_ns)), 0.05))
    low_ns, high_ns = (share * shortest_ns for share in _BLUR)
    by_size: defaultdict[int, list[Times]] = defaultdict(list)
    gaps = blurred = 0
    for loop in busy:
        done_ns = np.sort(loop.done_ns)
        between = _gaps(done_ns)
        gaps += len(between)
        blurred += int(((between > low_ns) & (between < high_ns)).sum())
        last = np.append(np.flatnonzero(between > high_ns), len(done_ns) - 1)
        sizes, took = np.diff(last), _gaps(done_ns[last])
        # The window cuts its last batch.
        for size in np.unique(sizes[:-1]):
            by_size[int(size)].append(took[:-1][sizes[:-1] == size])
    joined = {size: np.concatenate(times) for size, times in by_size.items() if size <= largest}
    return Service(_often(joined), blurred / gaps)


def with_open(
    service: Service, open_loops: list[OpenLoop], *, instances: int, largest: int
) -> Service:
    """Of each size what open loops told, and ``service``, of closed ones, where they told too few.

    Poisson arrivals come in the middle of a batch, and each costs the server more then: what it
    computes with leaves the CPU's caches. A closed loop's come together, between two batches.
    """
    if 1 not in service.times_ns:
        return service
    shortest_ns = float(np.quantile(service.times_ns[1], 0.05))
    by_size: defaultdict[int, list[Times]] = defaultdict(list)
    idle: list[Times] = []
    for loop in open_loops:
        if len(loop.done_ns) < 2:
            continue
        if largest == 1:
            busy_ns, idle_ns = _queued(loop, instances)
            found = {1: busy_ns}
        else:
            found, idle_ns = _joined(loop, largest, shortest_ns)
        idle.append(idle_ns)
        for size, times in found.items():
            by_size[size].append(times)
    told = _often({size: np.concatenate(times) for size, times in by_size.items()})
    found_idle = np.concatenate(idle) if idle else service.idle_ns
    rested = np.sort(found_idle) if len(found_idle) >= FEWEST else service.idle_ns
    times_ns = {**service.times_ns, **told}
    ordered = {size: times_ns[size] for size in sorted(times_ns)}
    return replace(service, times_ns=ordered, idle_ns=rested)


def _queued(loop: OpenLoop, instances: int) -> tuple[Times, Times]:
    """Service times of those who waited, and response times of those who did not.

    First come, first served: a request starts when it is due, or when of those before it one less
    than there are instances is still served.
    """
    order = np.argsort(loop.due_ns, kind="stable")
    ends: list[int] = []
    busy, idle = [], []
    for due_ns, done_ns in zip(
        loop.due_ns[order].tolist(), loop.done_ns[order].tolist(), strict=True
    ):
        free_ns = ends[0] if len(ends) == instances else 0
        if free_ns > due_ns:
            busy.append(done_ns - free_ns)
        elif ends:
            idle.append(done_ns - due_ns)
        if len(ends) < instances:
            heapq.heappush(ends, done_ns)
        else:
            # Of all that have ended only the latest matter.
            heapq.heappushpop(ends, done_ns)
    took = np.array(busy, np.int64)
    return took[took > 0], np.array(idle, np.int64)


def _joined(loop: OpenLoop, largest: int, shortest_ns: float) -> tuple[dict[int, Times], Times]:
    """Of batches whose members had all come when the one before ended, and of lone requests."""
    order = np.argsort(loop.done_ns, kind="stable")
    due_ns, done_ns = loop.due_ns[order], loop.done_ns[order]
    last = np.append(np.flatnonzero(_gaps(done_ns) > _BLUR[1] * shortest_ns), len(done_ns) - 1)
    first = np.append(0, last[:-1] + 1)
    came_ns = np.maximum.reduceat(due_ns, first)[1:]
    sizes, ends_ns = (last - first + 1)[1:], done_ns[last]
    before_ns, after_ns = ends_ns[:-1], ends_ns[1:]
    waited = came_ns < before_ns
    found = {
        int(size): (after_ns - before_ns)[waited & (sizes == size)]
        for size in np.unique(sizes)
        if size <= largest
    }
    lone = (sizes == 1) & (came_ns >= before_ns)
    return found, (after_ns - came_ns)[lone]


def may_rest(alone_ns: Times, delay_ns: int) -> bool:
    """Whether instances rest in a closed loop because the queue waits ``delay_ns`` for company.

    What came during a batch has waited for long enough when it ends, unless the delay is about as
    long as a batch of one row takes. A lone request waits for all of the delay, then is served.
    """
    return bool(len(alone_ns)) and 3 * delay_ns > float(np.median(alone_ns))


def _one_by_one(busy: list[Loop], instances: int) -> Service:
    if instances == 1:
        found = [_gaps(np.sort(loop.done_ns)) for loop in busy]
    else:
        # With as many ahead for each instance, requests that come at one moment start at one moment
        # too, so that it makes no difference which of them the server took first.
        found = [_in_turn(loop, instances) for loop in busy if loop.users % instances == 0]
    times = np.concatenate(found) if found else np.zeros(0, np.int64)
    right = times > 0
    return Service(_often({1: times[right]}), float(1 - right.mean()) if len(right) else 0.0)


def _gaps(ends_ns: Times) -> Times:
    return ends_ns[1:] - ends_ns[:-1]


def _in_turn(loop: Loop, instances: int) -> Times:
    """How long each was served that starts when those ahead of it have left the queue.

    A request comes when its user's last one leaves. It is the last of ``users`` then, and starts
    when so many more have left that there are only ``instances``.
    """
    # Those that were due before the window left in it too.
    ends_ns = np.union1d(loop.due_ns, loop.done_ns)
    before = np.searchsorted(ends_ns, loop.due_ns, side="right") + loop.users - instances - 1
    known = before < len(ends_ns)
    return loop.done_ns[known] - ends_ns[before[known]]


def _often(times: Mapping[int, Times]) -> dict[int, Times]:
    return {size: np.sort(times[size]) for size in sorted(times) if len(times[size]) >= FEWEST}


def loop_users(*, instances: int, largest: int) -> tuple[int, ...]:
    """The closed loops of a profile: one user, full batches, and a sweep by doubling.

    While a batch of one row is served, the other users' requests join: so b + 1 users give batches
    of 1 and of b, and twice as many as a batch holds give full ones.
    """
    most = max(2 * largest, 8) * instances
    sweep = {instances << step for step in range(most.bit_length()) if instances << step <= most}
    return tuple(sorted({1, instances + 1, most, *sweep} | {instances * (largest + 1)}))
