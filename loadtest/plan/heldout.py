"""A prediction held against a load that it has not seen: the same schedule, simulated and served.

What is predicted is the answer to the very arrivals of the load, which are known beforehand from
its seed; so chance in the arrivals does not count as an error of the prediction. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from loadtest.capacity.scheduler import Fleet, Frames
from loadtest.capacity.service import Times
from loadtest.capacity.simulate import simulate
from loadtest.confidence import bounding_ranks
from loadtest.plan.demand import Arrivals
from loadtest.plan.predict import WINDOWS, percentile_ms, range_of
from loadtest.plan.record import Range, Verification
from loadtest.plan.server import Server
from loadtest.results import OUTCOMES
from loadtest.scenarios import OpenLoop
from serving.errors import LoadError

WITHIN = 0.15
MOST_DRIFT = 0.05
"""A machine that has become so much faster or slower is not the one of the profile."""
_OK = OUTCOMES.index("ok")
_NS = 1e9


@dataclass(frozen=True)
class Measured:
    """Response times in ns of the requests of one window; of frames their age.

    Attributes:
        first, last: places among the schedule's arrivals of the first and behind the last.
    """

    response_ns: Times
    first: int
    last: int

    def percentile_ms(self, quantile: float) -> tuple[float, float, float | None]:
        """Nearest rank and its 99% bounds; no upper one where the samples give none."""
        ordered = np.sort(self.response_ns)
        low, high = bounding_ranks(len(ordered), quantile, 1.0)
        upper = None if high is None else float(ordered[high - 1]) / 1e6
        return percentile_ms(ordered, quantile), float(ordered[max(low, 1) - 1]) / 1e6, upper


def schedule_of(load: OpenLoop, seed: int, length_s: float) -> Arrivals:
    """The arrivals of the first ``length_s`` of a load, as its generator makes them."""
    rng, end_ns = np.random.default_rng(seed), length_s * _NS
    due, streams = [], []
    if load.streams is None:
        for times in load.arrivals(rng):
            due.append(times)
            if len(times) and times[-1] >= end_ns:
                break
        return Arrivals(np.concatenate(due))
    for times, numbers in load.streams.frames(rng):
        due.append(times)
        streams.append(numbers)
        if len(times) and times[-1] >= end_ns:
            break
    return Arrivals(np.concatenate(due), np.concatenate(streams))


def measured_of(requests: npt.NDArray[Any], arrivals: Arrivals) -> Measured:
    """Where the kept requests of a window lie in the schedule, and how long they took.

    Raises:
        LoadError: they are not a stretch of it, or none was answered rightly.
    """
    right = requests[requests["outcome"] == _OK]
    if len(requests) < 2 or not len(right):
        raise LoadError(
            f"the held-out load gave {len(right)} right answers to {len(requests)} requests",
            hint="Run it again; its log is in the folder.",
        )
    due_ns = np.sort(requests["due"])
    gaps, wanted = np.diff(arrivals.due_ns), np.diff(due_ns)
    starts = np.flatnonzero(gaps[: max(len(gaps) - len(wanted) + 1, 0)] == wanted[0])
    found = next((s for s in starts if np.array_equal(gaps[s : s + len(wanted)], wanted)), None)
    if found is None:
        raise LoadError(
            "the requests of the held-out load are no stretch of its schedule",
            hint="Run it again; the generator may have fallen behind.",
        )
    return Measured(right["done"] - right["due"], int(found), int(found) + len(due_ns))


def predicted(
    server: Server, load: OpenLoop, arrivals: Arrivals, window: Measured, quantile: float, seed: int
) -> Range:
    """The percentile in that window, over ``WINDOWS`` draws of the service times, in ms.

    Raises:
        LoadError: the simulation answers nothing in the window.
    """
    frames = None
    if load.streams is not None:
        frames = Frames.at_camera(load.streams.policy, load.streams.deadline_ns or 0)
    inside = slice(window.first, window.last)
    values = []
    for number in range(WINDOWS):
        start = server.starts[number % len(server.starts)]
        fleet = Fleet(start.service, server.scheduler, 1, frames=frames)
        own = np.random.SeedSequence((seed, number, 2))
        served = simulate(fleet, arrivals.due_ns, own, streams=arrivals.streams)
        took_ns = (served.done_ns - served.arrived_ns)[inside][served.ok[inside]]
        if not len(took_ns):
            raise LoadError(
                "by the prediction nothing is answered in the held-out window",
                hint="Plan for a load that the server can carry.",
            )
        values.append(percentile_ms(took_ns + start.delay_ns, quantile))
    return range_of(values)


def verification(
    *,
    backend: str,
    profile: str,
    load: str,
    rate_rps: float,
    server: Server,
    percentile: str,
    expected: Range,
    seen: tuple[float, float, float | None],
    drift: float | None,
    reasons: tuple[str, ...],
) -> Verification:
    """``reasons`` are why the window itself does not count."""
    error = expected.value / seen[0] - 1
    if drift is not None and abs(drift) > MOST_DRIFT:
        reasons = (*reasons, f"the machine is {abs(drift):.0%} {_way(drift)} than when profiled")
    met: Literal["within 15%", "missed"] = "within 15%" if abs(error) <= WITHIN else "missed"
    return Verification(
        backend=backend,
        profile=profile,
        load=load,
        rate_rps=rate_rps,
        utilisation=rate_rps / server.saturated_rps,
        percentile=percentile,
        predicted_ms=expected,
        measured_ms=seen[0],
        measured_low_ms=seen[1],
        measured_high_ms=seen[2],
        error=error,
        drift=drift,
        verdict="INVALID" if reasons else met,
        reasons=reasons,
    )


def _way(drift: float) -> str:
    return "faster" if drift > 0 else "slower"
