"""What a batch takes in an instance: measured times, drawn again, never extrapolated."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from serving.errors import UsageError

Times = npt.NDArray[np.int64]


@dataclass(frozen=True)
class ServiceSamples:
    """Measured service times in ns, sorted, per measured batch size.

    One of them is drawn by inverse transform: with u uniform in [0, 1), the sample of rank
    floor(u n) + 1 of n (Devroye, *Non-Uniform Random Variate Generation*, 1986, II.2). So nothing
    is ever shorter than the shortest or longer than the longest that was measured.

    Attributes:
        rested: of one request that an idle instance takes the moment it comes; ``None`` where that
            is no different.
    """

    per_batch: Mapping[int, Times]
    rested: Times | None = None

    @classmethod
    def of(cls, measured: Mapping[int, npt.ArrayLike]) -> ServiceSamples:
        """From batch size to its service times in ns, in any order.

        Raises:
            UsageError: no samples, a batch size below 1, or a time that is not positive.
        """
        per_batch = {
            size: np.sort(np.asarray(measured[size])).astype(np.int64) for size in sorted(measured)
        }
        if not per_batch or not all(len(times) for times in per_batch.values()):
            raise UsageError(
                "there are no service times to draw from",
                hint="Measure at least one batch size first.",
            )
        if min(per_batch) < 1 or min(times.min() for times in per_batch.values()) <= 0:
            raise UsageError(
                "a batch size below 1, or a service time that is not above 0 ns",
                hint="Give measured times in nanoseconds per batch size.",
            )
        return cls(per_batch)

    def filled(self, largest: int) -> ServiceSamples:
        """The same with every size up to ``largest`` that lies between two measured ones.

        Quantile by quantile on the straight line between its neighbours; nothing is added below
        the smallest measured size or above the largest.
        """
        sizes = sorted(self.per_batch)
        found = dict(self.per_batch)
        for low, high in pairwise(sizes):
            count = max(len(self.per_batch[low]), len(self.per_batch[high]))
            at = (np.arange(count) + 0.5) / count
            ends = [np.quantile(self.per_batch[size], at) for size in (low, high)]
            for size in range(low + 1, min(high, largest + 1)):
                share = (size - low) / (high - low)
                found[size] = np.rint(ends[0] + share * (ends[1] - ends[0])).astype(np.int64)
        return replace(self, per_batch={size: found[size] for size in sorted(found)})

    def after_rest(self, times_ns: Times) -> ServiceSamples:
        """The same with what an idle instance takes for one request; nothing of it where empty."""
        return replace(self, rested=np.sort(np.maximum(times_ns, 1)) if len(times_ns) else None)

    @property
    def largest_batch(self) -> int:
        return max(self.per_batch)

    def size_for(self, batch: int) -> int:
        """The next batch size that was measured: padding up is possible, guessing is not.

        Raises:
            UsageError: ``batch`` is above all measured ones.
        """
        measured = [size for size in self.per_batch if size >= batch]
        if not measured:
            raise UsageError(
                f"no service time is known for batches of {batch}: the largest measured one is "
                f"{self.largest_batch}",
                hint=f"Measure that batch size, or plan with at most {self.largest_batch}.",
            )
        return min(measured)

    def times_ns(self, batch: int) -> Times:
        """Raises: UsageError: ``batch`` is above all measured ones."""
        return self.per_batch[self.size_for(batch)]

    def mean_ns(self, batch: int) -> float:
        """Raises: UsageError: ``batch`` is above all measured ones."""
        return float(self.times_ns(batch).mean())

    def squared_variation(self, batch: int) -> float:
        """Squared coefficient of variation. Raises: UsageError: ``batch`` is above all measured."""
        times = self.times_ns(batch)
        return float(times.var() / times.mean() ** 2)
