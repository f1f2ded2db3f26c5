"""When a server is warm: a rule over what it has answered so far. Pure.

Warm-up ends when the mean service time of its last third is within 10% of the third before it.
A fixed length would be too short for one server and a waste for another.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

LEAST_S = 0.5
LIMIT_S = 10.0
REPLIES_PER_USER = 2
SETTLED_WITHIN = 0.10
CHECK_EVERY_S = 0.25
_KEPT = 100_000


class Warmth:
    """Collects the service times of right answers, in the order in which they came."""

    def __init__(self) -> None:
        self._service_ns = np.zeros(0, np.int64)
        self.requests = 0

    def add(self, service_ns: npt.NDArray[np.int64]) -> None:
        self.requests += len(service_ns)
        self._service_ns = np.concatenate([self._service_ns, service_ns])[-_KEPT:]

    def settled(self, users: int, elapsed_s: float, least_s: float = LEAST_S) -> bool:
        """Whether measuring may begin; never before ``least_s``."""
        needed = max(REPLIES_PER_USER * users, 3)
        if elapsed_s < least_s or self.requests < needed:
            return False
        third = len(self._service_ns) // 3
        last = float(self._service_ns[-third:].mean())
        before = float(self._service_ns[-2 * third : -third].mean())
        return abs(last / before - 1) <= SETTLED_WITHIN
