"""What happens to a planned fleet when replicas fail, a burst comes, or the demand grows."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from loadtest.camera_schedule import Numbers
from loadtest.capacity.scheduler import Frames
from loadtest.plan.demand import Arrivals, Demand
from loadtest.plan.fleet import Search
from loadtest.plan.predict import Predictor, percentile_ms, range_of
from loadtest.plan.question import Question
from loadtest.plan.record import BurstForecast, CurvePoint, FailureForecast, FleetPoint
from loadtest.plan.server import Server, replicas_for

_NS = 1e9
UTILISATIONS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)
DEMANDS = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0)


def failure_of(search: Search, server: Server, replicas: int) -> FailureForecast:
    """``survive`` replicas fail at once, one where the plan survives none."""
    question = search.question
    failed = max(question.survive, 1)
    left = replicas - failed
    restart = [repeat.start_s for repeat in server.profile.repeats if repeat.start_s is not None]
    rate_rps = question.demand.rate_rps
    seen = search.at(left) if left > 0 else None
    utilisation = rate_rps / (left * server.saturated_rps) if left > 0 else float("inf")
    keeps_up = seen is not None and (utilisation < 1 or question.demand.frames is not None)
    return FailureForecast(
        failed=failed,
        lost_share=failed / replicas,
        detect_s=question.detect_s,
        response_ms=seen.response_ms if seen and keeps_up else None,
        utilisation=min(utilisation, 1e6),
        holds=bool(seen and seen.holds),
        restart_s=max(restart, default=None),
    )


@dataclass(frozen=True)
class _Burst:
    """A demand with a burst in the middle of its window."""

    calm: Demand
    factor: float
    length_s: float
    at_s: float

    @property
    def rate_rps(self) -> float:
        return self.calm.rate_rps

    @property
    def text(self) -> str:
        return f"{self.calm.text}, {self.factor:g} times for {self.length_s:g} s"

    @property
    def frames(self) -> Frames | None:
        return self.calm.frames

    def arrivals(self, length_s: float, seed: np.random.SeedSequence) -> Arrivals:
        before, during, after = seed.spawn(3)
        end_s = self.at_s + self.length_s
        parts = [
            (0.0, self.calm.arrivals(self.at_s, before)),
            (self.at_s, self.calm.hurried(self.factor).arrivals(self.length_s, during)),
            (end_s, self.calm.arrivals(max(length_s - end_s, 0.0), after)),
        ]
        due = np.concatenate([part.due_ns + round(start * _NS) for start, part in parts])
        order = np.argsort(due, kind="stable")
        found = [part.streams for _, part in parts if part.streams is not None]
        streams: Numbers | None = np.concatenate(found)[order] if found else None
        return Arrivals(due[order], streams)

    def scaled(self, factor: float) -> Demand:
        return replace(self, calm=self.calm.scaled(factor))

    def hurried(self, factor: float) -> Demand:
        return replace(self, calm=self.calm.hurried(factor))


def burst_of(predictor: Predictor, question: Question, replicas: int) -> BurstForecast:
    """In the first part of the window after warm-up; recovered when a second is as before."""
    factor, length_s = question.burst
    window_s = max(6 * length_s, 30.0)
    at_s = 0.25 * window_s + length_s
    demand = _Burst(question.demand, factor, length_s, at_s)
    own = replace(predictor, demand=demand, length_s=window_s, _made={}, _shards={})
    windows = own.predict(replicas)
    start_ns, end_ns = round(at_s * _NS), round((at_s + length_s) * _NS)
    quantile = question.objective.quantile
    values, recovered = [], []
    for window in windows:
        inside = (window.due_ns >= start_ns) & (window.due_ns < end_ns)
        # Where nothing is lost, nothing answered means that nothing came.
        if inside.any() or window.lost_share:
            response_ns = window.response_ns[inside]
            values.append(percentile_ms(response_ns, quantile) if len(response_ns) else None)
        recovered.append(_recovery_s(window.due_ns, window.response_ns, start_ns, end_ns))
    answered = [value for value in values if value is not None]
    response_ms = range_of(answered) if answered and len(answered) == len(values) else None
    known = sorted(value for value in recovered if value is not None)
    return BurstForecast(
        factor=factor,
        length_s=length_s,
        response_ms=response_ms,
        recovery_s=known[len(known) // 2] if 2 * len(known) > len(recovered) else None,
        holds=response_ms is not None and response_ms.high <= question.limit_ms,
    )


def _recovery_s(
    due_ns: np.ndarray, response_ns: np.ndarray, start_ns: int, end_ns: int
) -> float | None:
    """Seconds after the burst until one whole second's largest wait is none beyond the calm's."""
    calm = response_ns[due_ns < start_ns]
    if not len(calm):
        return None
    usual_ns = float(calm.max())
    last_ns = int(due_ns.max(initial=0))
    for second in range(max((last_ns - end_ns) // int(_NS), 0)):
        first = end_ns + second * int(_NS)
        inside = (due_ns >= first) & (due_ns < first + _NS)
        if inside.any() and response_ns[inside].max() <= usual_ns:
            return float(second)
    return None


def curve_of(predictor: Predictor, question: Question) -> Iterator[CurvePoint]:
    """One replica, without the link, from little to nearly full."""
    saturated_rps = predictor.server.saturated_rps
    demands = (
        question.demand.scaled(utilisation * saturated_rps / question.demand.rate_rps)
        for utilisation in UTILISATIONS
    )
    # Whole cameras come in few numbers, and even one may be too much.
    each = {demand.rate_rps: demand for demand in demands if demand.rate_rps < saturated_rps}
    for demand in each.values():
        own = replace(predictor, demand=demand, wire=None, _made={}, _shards={})
        values = [w.percentile_ms(question.objective.quantile) for w in own.predict(1)]
        if max(values) < float("inf"):
            yield CurvePoint(
                utilisation=demand.rate_rps / saturated_rps,
                rate_rps=demand.rate_rps,
                response_ms=range_of(values),
            )


def fleet_points(question: Question, by_objective: int, usable_rps: float) -> Iterator[FleetPoint]:
    """How many for less and more of the same demand.

    As the planned fleet was sized: by headroom, and with the ``by_objective`` replicas that the
    simulation asked for in proportion to the demand, the spare ones besides.
    """
    for factor in DEMANDS:
        rate = factor * question.demand.rate_rps
        by_headroom = replicas_for(rate, usable_rps, question.headroom)
        in_proportion = max(int(np.ceil(by_objective * factor - 1e-9)), 1) + question.survive
        yield FleetPoint(rate_rps=rate, replicas=max(by_headroom, in_proportion))


def growth_until_missed(predictor: Predictor, question: Question, replicas: int) -> float | None:
    """How many times the demand the fleet serves within the objective; to about 3%."""
    low, high = 1.0, 1.0

    def holds(factor: float) -> bool:
        scaled = replace(question, demand=question.demand.scaled(factor))
        own = replace(predictor, demand=scaled.demand, windows=5, _made={}, _shards={})
        return Search(own, scaled).at(replicas).holds

    if not holds(1.0):
        return None
    while high < 16 and holds(high * 1.5):
        low = high = high * 1.5
    high *= 1.5
    while high / low > 1.03:
        middle = (low * high) ** 0.5
        if holds(middle):
            low = middle
        else:
            high = middle
    return low
