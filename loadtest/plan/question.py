"""What a plan is asked."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.capacity.scheduler import Balance
from loadtest.links.profile import LinkProfile
from loadtest.objective import Percentile
from loadtest.plan.demand import Demand
from serving.errors import UsageError


@dataclass(frozen=True)
class Question:
    """Attributes:
    most_lost: share of requests or frames that may go unanswered.
    survive: replicas that may fail at once, with the objective kept by those left.
    headroom: share of the usable rate that is left unused while all are up.
    detect_s: how long a balancer sends to a dead replica (assumption unless given).
    burst: times the demand, for so many seconds.
    price_per_hour: of one replica.
    hover_w, battery_wh: of the drone that carries the device.
    payload: what a request is, in words.
    """

    demand: Demand
    objective: Percentile
    most_lost: float = 0.001
    link: LinkProfile | None = None
    survive: int = 0
    headroom: float = 0.3
    balance: Balance = "least-outstanding"
    detect_s: float = 1.0
    burst: tuple[float, float] = (1.5, 10.0)
    price_per_hour: float | None = None
    currency: str | None = None
    hover_w: float | None = None
    battery_wh: float | None = None
    seed: int = 1
    most_replicas: int = 10_000

    def __post_init__(self) -> None:
        if self.survive < 0:
            raise UsageError(
                f"--survive is {self.survive}", hint="Give how many failures, 0 or more."
            )
        if not 0 <= self.headroom < 1:
            raise UsageError(
                f"a headroom of {self.headroom:g}", hint="Give a share from 0 to below 1."
            )
        if not 0 <= self.most_lost < 1:
            raise UsageError(
                f"a loss of {self.most_lost:g}", hint="Give a share from 0 to below 1."
            )

    @property
    def limit_ms(self) -> float:
        return self.objective.limit_ns / 1e6
