"""What another instance on the same machine brought, as it was measured. Pure.

Nothing is extrapolated: instances are only told apart where each number of them has a profile.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise

from loadtest.plan.record import ScalingPoint
from loadtest.plan.server import Server


def scaling_of(peak_rps: Mapping[int, float]) -> tuple[ScalingPoint, ...]:
    """From instances to the highest measured rate; the fewest stand for an efficiency of 1.

    The knee is the number with the highest rate: beyond it more instances answer less.
    """
    if len(peak_rps) < 2:
        return ()
    counts = sorted(peak_rps)
    first = counts[0]
    each_rps = peak_rps[first] / first
    knee = max(counts, key=lambda count: (peak_rps[count], -count))
    gains: dict[int, float | None] = {first: None}
    for before, after in pairwise(counts):
        gains[after] = (peak_rps[after] - peak_rps[before]) / ((after - before) * each_rps)
    return tuple(
        ScalingPoint(
            instances=count,
            peak_rps=peak_rps[count],
            efficiency=peak_rps[count] / (count * each_rps),
            gain_each=gains[count],
            knee=count == knee,
        )
        for count in counts
    )


def measured_scaling(servers: Sequence[Server]) -> dict[str, tuple[ScalingPoint, ...]]:
    """By backend and machine, where profiles of the two differ in their instances."""
    peaks: dict[str, dict[int, float]] = {}
    for server in servers:
        profile, count = server.profile, server.scheduler.instances
        rates = [one.requests_per_s for one in profile.sweep if one.verdict == "VALID"]
        if not rates:
            continue
        where = f"{profile.backend} on {profile.server_cpus} CPU of {profile.machine.hostname}"
        own = peaks.setdefault(where, {})
        own[count] = max([own.get(count, 0.0), *rates])
    found = {where: scaling_of(rates) for where, rates in peaks.items()}
    return {where: points for where, points in found.items() if points}
