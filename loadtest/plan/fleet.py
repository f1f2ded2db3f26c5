"""The smallest fleet that keeps an objective, as the simulation finds it."""

from __future__ import annotations

from dataclasses import dataclass, field

from loadtest.capacity.cameras import CameraReport
from loadtest.plan.predict import Predictor, range_of
from loadtest.plan.question import Question
from loadtest.plan.record import Range
from loadtest.plan.server import replicas_for


@dataclass(frozen=True)
class Seen:
    """So many replicas under the demand.

    Attributes:
        cameras: of each window; empty where there are no streams.
        response_ms: the objective's percentile; ``None`` where some window answered nothing.
        lost_share: of requests or frames, the worst of 18 in 20 windows.
    """

    replicas: int
    cameras: tuple[CameraReport, ...]
    response_ms: Range | None
    lost_share: float
    holds: bool


@dataclass
class Search:
    """Fleets of one server under one question; every size is simulated once."""

    predictor: Predictor
    question: Question
    _seen: dict[int, Seen] = field(default_factory=dict)

    @property
    def tried(self) -> tuple[int, ...]:
        return tuple(self._seen)

    def at(self, replicas: int) -> Seen:
        if replicas not in self._seen:
            windows = self.predictor.predict(replicas)
            values = [window.percentile_ms(self.question.objective.quantile) for window in windows]
            answered = [value for value in values if value < float("inf")]
            whole = len(answered) == len(values)
            response_ms = range_of(answered) if whole else None
            lost = range_of([window.lost_share for window in windows]).high
            holds = (
                response_ms is not None
                and response_ms.high <= self.question.limit_ms
                and lost <= self.question.most_lost
            )
            cameras = tuple(window.cameras for window in windows if window.cameras is not None)
            self._seen[replicas] = Seen(replicas, cameras, response_ms, lost, holds)
        return self._seen[replicas]

    def smallest(self, at_least: int) -> int | None:
        """The smallest fleet of ``at_least`` or more that holds; ``None`` below the limit of 8.

        More replicas are taken to be no worse. Doubling, then halving.
        """
        low, high = at_least - 1, at_least
        while not self.at(high).holds:
            low, high = high, 2 * high
            if high > min(8 * at_least, self.question.most_replicas):
                return None
        while high - low > 1:
            middle = (low + high) // 2
            if self.at(middle).holds:
                high = middle
            else:
                low = middle
        return high


@dataclass(frozen=True)
class Sized:
    """Attributes:
    replicas: in all, with the spare ones.
    by_headroom: what the highest measured rate within the objective asks for.
    by_objective: what the simulation asks for, before any failure.
    """

    replicas: int
    by_headroom: int
    by_objective: int


def size(search: Search, usable_rps: float) -> Sized | None:
    """As many as headroom asks while all are up, and enough when ``survive`` have failed.

    ``None`` where no fleet within ``most_replicas`` does, or the simulation finds none.
    """
    question = search.question
    rate_rps = question.demand.rate_rps
    by_headroom = replicas_for(rate_rps, usable_rps, question.headroom)
    if by_headroom > question.most_replicas:
        return None
    bare = replicas_for(rate_rps, usable_rps, 0.0)
    by_objective = search.smallest(bare)
    if by_objective is None:
        return None
    replicas = max(by_headroom, by_objective + question.survive)

    def holds(count: int) -> bool:
        return search.at(count).holds and search.at(count - question.survive).holds

    # With more replicas than it was tried with a fleet is taken to be no worse; these are seen.
    while not holds(replicas) and replicas < question.most_replicas:
        replicas += 1
    return Sized(replicas, by_headroom, by_objective)
