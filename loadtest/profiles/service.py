"""From the ends of requests to how long batches occupied an instance. Pure; times in ns.

In a closed loop with more users than a batch has rows an instance never rests: it takes the next
batch when the one before is done, and the replies of a batch leave together. So the time from the
end of one batch to the end of the next is what a batch costs, with all that the server does beside
it on the same CPUs: reading requests, joining rows, writing replies. With k instances it is the
time to the end of the k-th batch after it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

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
    """One closed loop: its users, and when their right answers were whole, ascending."""

    users: int
    done_ns: Times


@dataclass(frozen=True)
class Service:
    """What closed loops told.

    Attributes:
        times_ns: from batch size to the times for which such a batch occupied an instance.
        blurred: share of all gaps that may lie within a batch or between two.
    """

    times_ns: Mapping[int, Times]
    blurred: float

    @property
    def clear(self) -> bool:
        return self.blurred <= _MOST_BLURRED


def service_of(loops: list[Loop], *, instances: int, largest: int) -> Service:
    """The service times of every batch size that was seen often enough.

    ``largest`` is 1 where the server joins nothing. Loops of so few users that an instance may
    rest are left out. The loop of ``instances`` + 1 users has batches of one row alone, and tells
    how short a service can be; without it nothing is found.
    """
    busy = [loop for loop in loops if loop.users > instances and len(loop.done_ns) > instances]
    if largest == 1:
        found = [_between(loop.done_ns, instances) for loop in busy]
        times = np.concatenate(found) if found else np.zeros(0, np.int64)
        return Service(_often({1: times}), 0.0)
    single = [loop for loop in busy if loop.users == instances + 1]
    if not single:
        return Service({}, 0.0)
    shortest_ns = float(np.quantile(np.diff(single[0].done_ns), 0.05))
    low_ns, high_ns = (share * shortest_ns for share in _BLUR)
    by_size: defaultdict[int, list[Times]] = defaultdict(list)
    gaps = blurred = 0
    for loop in busy:
        between = np.diff(loop.done_ns)
        gaps += len(between)
        blurred += int(((between > low_ns) & (between < high_ns)).sum())
        last = np.append(np.flatnonzero(between > high_ns), len(loop.done_ns) - 1)
        sizes, took = np.diff(last)[instances - 1 :], _between(loop.done_ns[last], instances)
        # The window cuts its last batch.
        for size in np.unique(sizes[:-1]):
            by_size[int(size)].append(took[:-1][sizes[:-1] == size])
    joined = {size: np.concatenate(times) for size, times in by_size.items() if size <= largest}
    return Service(_often(joined), blurred / gaps)


def may_rest(alone_ns: Times, delay_ns: int) -> bool:
    """Whether instances rest in a closed loop because the queue waits ``delay_ns`` for company.

    What came during a batch has waited for long enough when it ends, unless the delay is about as
    long as a batch of one row takes. A lone request waits for all of the delay, then is served.
    """
    return bool(len(alone_ns)) and 3 * delay_ns > float(np.median(alone_ns))


def _between(ends_ns: Times, instances: int) -> Times:
    return ends_ns[instances:] - ends_ns[:-instances]


def _often(times: Mapping[int, Times]) -> dict[int, Times]:
    return {size: np.sort(times[size]) for size in sorted(times) if len(times[size]) >= FEWEST}


def loop_users(*, instances: int, largest: int) -> tuple[int, ...]:
    """The closed loops that a profile needs: one user, each batch size, and twice the largest.

    While a batch of one row is served, the other users' requests join: so b + 1 users give batches
    of 1 and of b. Large sizes are taken in steps of a quarter to a half.
    """
    sizes = [size for size in _sizes() if size < largest] + [largest]
    joined = {size + instances for size in sizes} if largest > 1 else set()
    alone = {1, instances, instances + 1, 2 * instances, 4 * instances}
    return tuple(sorted(joined | alone | {2 * largest * instances}))


def _sizes() -> list[int]:
    return [1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96, 128, 192, 256]
