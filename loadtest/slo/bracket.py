"""Where a search begins and ends, from two closed loops measured in front of it. Pure.

One request at a time tells the bare service: where that misses, no rate can help. Many at once tell
about how much the server can do.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from loadtest.confidence import Samples
from loadtest.objective import Objectives, Percentile
from loadtest.slo.search import Scope
from loadtest.validity import CEILING_LIMIT
from serving.errors import LoadError

ONE, MANY = 1.0, 16.0
"""Users of the two closed loops."""
CLOSED_S = 3.0
SAMPLES = 8
"""A window has so many times the fewest requests that bound the percentile. With fewer the upper
bound lies far above the percentile, and the rates of two searches on one server too far apart to
tell another server from it: with four times a difference of 10% is missed in a tenth of cases."""
UNDER_CEILING = 0.9
"""Of the rate at which a window is client-bound: a Poisson window may have more than its rate."""
LEAST_UTILISATION, MOST_UTILISATION = 0.1, 0.9


@dataclass(frozen=True)
class Windows:
    """How long the windows of a search may be, in seconds."""

    shortest_s: float
    longest_s: float

    def length_s(self, rate_rps: float, needed: int) -> float:
        """So many that a window has ``SAMPLES * needed`` requests, within the bounds."""
        return min(max(SAMPLES * needed / rate_rps, self.shortest_s), self.longest_s)

    def lowest_rps(self, needed: int) -> float:
        """Below it even the longest window may have fewer than ``needed`` requests.

        Their number is Poisson's; this leaves room for four standard deviations.
        """
        return math.ceil(100 * (needed + 4 * math.sqrt(needed)) / self.longest_s) / 100


def bare_misses(percentile: Percentile, bare: Samples) -> bool:
    """Whether the lower 99% bound is above the limit already when requests come one at a time.

    There must be one.
    """
    return bare.surely_above(percentile.limit_ns, percentile.quantile)


def utilisation_for(percentile: Percentile, bare_ns: float, capacity_rps: float) -> float:
    """About where the percentile reaches its limit: a first guess, and no more.

    In heavy traffic the wait is exponential, P(W > t) = exp(-2 (1 - rho) t X) for Poisson arrivals
    and service times that hardly vary (Kingman 1962); X is the most that the server answers.
    """
    left_s = (percentile.limit_ns - bare_ns) / 1e9
    if left_s <= 0:
        return LEAST_UTILISATION
    guess = 1 + math.log(1 - percentile.quantile) / (2 * capacity_rps * left_s)
    return min(max(guess, LEAST_UTILISATION), MOST_UTILISATION)


def scope_of(
    objectives: Objectives,
    bare: Samples,
    capacity_rps: float,
    ceiling_rps: float | None,
    windows: Windows,
    *,
    hopeless: bool,
) -> Scope:
    """The scope of a search.

    Args:
        objectives: what is searched for.
        bare: response times of one request at a time; at least one.
        windows: how long a window may be.
        capacity_rps: right answers per second of the closed loop with many users.
        ceiling_rps: the generator's own; ``None`` where unknown.
        hopeless: whether the bare server misses an objective that no lower rate can help.

    Raises:
        LoadError: the rates that could be measured are not those that the server can serve.
    """
    lowest_rps = windows.lowest_rps(objectives.needed)
    highest_rps = math.inf if ceiling_rps is None else UNDER_CEILING * CEILING_LIMIT * ceiling_rps
    _require_measurable(capacity_rps, highest_rps, lowest_rps, objectives.percentiles, windows)
    guess = min(
        utilisation_for(one, bare.at_rank(math.ceil(one.quantile * bare.count)), capacity_rps)
        for one in objectives.percentiles
    )
    share = LEAST_UTILISATION if hopeless else guess
    return Scope(share * capacity_rps, lowest_rps, highest_rps, hopeless)


def _require_measurable(
    capacity_rps: float,
    highest_rps: float,
    lowest_rps: float,
    percentiles: Sequence[Percentile],
    windows: Windows,
) -> None:
    if min(capacity_rps, highest_rps) >= lowest_rps:
        return
    name = max(percentiles, key=lambda one: one.quantile).name
    who = "the server answers" if capacity_rps < lowest_rps else "the generator can send"
    raise LoadError(
        f"{name} needs {lowest_rps:.3g} requests/s in windows of {windows.longest_s:g} s, and "
        f"{who} about {min(capacity_rps, highest_rps):.3g}",
        hint="Choose a lower percentile, or longer windows with --limit.",
    )
