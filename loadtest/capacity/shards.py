"""A large fleet as several small ones that know nothing of each other."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from loadtest.capacity.scheduler import Fleet
from serving.errors import UsageError


@dataclass(frozen=True)
class Shard:
    """One part of a fleet.

    Attributes:
        share: its part of all arrivals, as of all replicas.
        seed: of its arrivals and its service times; independent of every other shard's.
    """

    fleet: Fleet
    share: float
    seed: np.random.SeedSequence


def split(fleet: Fleet, shards: int, seed: int) -> tuple[Shard, ...]:
    """Replicas as evenly as they go, and a seed for each part (``SeedSequence.spawn``).

    That is a fleet whose traffic is divided before its balancer sees it: a least-outstanding
    balancer chooses within its shard only.

    Raises:
        UsageError: fewer than one replica for each.
    """
    if not 1 <= shards <= fleet.replicas:
        raise UsageError(
            f"{fleet.replicas} replicas in {shards} shards",
            hint="Give each shard at least one replica.",
        )
    each, more = divmod(fleet.replicas, shards)
    sizes = [each + (number < more) for number in range(shards)]
    seeds = np.random.SeedSequence(seed).spawn(shards)
    return tuple(
        Shard(replace(fleet, replicas=size), size / fleet.replicas, own)
        for size, own in zip(sizes, seeds, strict=True)
    )
