"""Servers that are a queue in virtual time, and the windows that a generator would have measured.

A request waits for the one worker, first come first served (Lindley, *The theory of queues with a
single server*, 1952), and what each took goes the way of real ones: into a ``Recorder``. Warm-up,
arrivals, windows and their early end are those of ``loadtest``; only server and clock are made up.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from loadtest.confidence import Samples, sample_floor
from loadtest.early_stop import Outlook, allowed_over
from loadtest.engine.base import OUTCOME, RECORD, Records
from loadtest.histogram import HIGHEST_NS, LOWEST_NS
from loadtest.recorder import Recorder
from loadtest.results import OUTCOMES, Settings, Trial
from loadtest.scenarios import OpenLoop, make_load
from loadtest.schedule import Times
from loadtest.steadiness import judge_steadiness
from loadtest.trial import LevelOutput, StopRule

Floats = npt.NDArray[np.float64]
Service = Literal["lognormal", "exponential", "constant"]

WARM_UP_S = 0.5
TURN_S = 0.1
"""How often a generator looks whether its window is lost."""
TAILS = ((0.99, 1000), (0.90, 100), (0.50, sample_floor(0.5)))
"""Which percentile of a second is asked for its steadiness, as in ``loadtest.validity``."""
_NS = 1e9


@dataclass(frozen=True)
class Queue:
    """One worker, which answers in the order of arrival.

    Attributes:
        service_s: mean time of one request in the worker.
        kind: distribution of that time.
        spread: of ``lognormal``: standard deviation of its logarithm.
        way_s: time of each request outside the worker, where nobody waits.
        start_noise: standard deviation of the logarithm of ``service_s`` from one start to another.
        window_noise: the same from one window to another.
    """

    service_s: float = 0.002
    kind: Service = "lognormal"
    spread: float = 0.3
    way_s: float = 0.0003
    start_noise: float = 0.01
    window_noise: float = 0.0

    def slowed(self, share: float) -> Queue:
        """One whose worker takes longer by ``share``."""
        return replace(self, service_s=self.service_s * (1 + share))

    def started(self, rng: np.random.Generator) -> Started:
        noise = math.exp(rng.normal(0.0, self.start_noise))
        return Started(replace(self, service_s=self.service_s * noise), rng)


@dataclass(frozen=True)
class Started:
    """One start of a queue. Each window draws its own service times."""

    queue: Queue
    rng: np.random.Generator

    def for_a_window(self) -> Started:
        """The same as it is in one window."""
        queue = self.queue
        if not queue.window_noise:
            return self
        noise = math.exp(self.rng.normal(0.0, queue.window_noise))
        return replace(self, queue=replace(queue, service_s=queue.service_s * noise))

    def answered(self, due_ns: Times) -> Times:
        """When each request is answered that was due at ``due_ns``, in ns.

        D[k] = max(A[k], D[k-1]) + S[k] without a loop: sums of S, and a running maximum.
        """
        service_s = self._service_s(len(due_ns))
        worked_s = np.cumsum(service_s)
        idle_s = np.maximum.accumulate(due_ns / _NS - (worked_s - service_s))
        return np.rint((worked_s + idle_s + self.queue.way_s) * _NS).astype(np.int64)

    def in_turns(self, users: int, until_s: float) -> tuple[Times, Times]:
        """Requests of a closed loop, in ns: when due, and when answered.

        All ways take equally long, so the k-th request is of the user whose (k - ``users``)-th was
        answered.
        """
        way_s, due, free = self.queue.way_s, [0.0] * users, 0.0
        ended: list[float] = []
        while free < until_s:
            for service_s in self._service_s(256).tolist():
                free = max(due[len(ended)], free) + service_s
                ended.append(free + way_s)
                due.append(free + way_s)
        moments = np.array(due[: len(ended)]), np.array(ended)
        due_ns, done_ns = (np.rint(moment * _NS).astype(np.int64) for moment in moments)
        return due_ns, done_ns

    def _service_s(self, count: int) -> Floats:
        queue, rng = self.queue, self.rng
        mean_s = queue.service_s
        if queue.kind == "constant":
            return np.full(count, mean_s)
        if queue.kind == "exponential":
            return rng.exponential(mean_s, count)
        middle_s = mean_s * math.exp(-(queue.spread**2) / 2)
        return middle_s * np.exp(rng.normal(0.0, queue.spread, count))


@dataclass(frozen=True)
class Window:
    """What was due in one window, in ns since the load began.

    Attributes:
        cut: why it was ended early.
    """

    level: float
    start_ns: int
    end_ns: int
    due_ns: Times
    done_ns: Times
    cut: str | None = None

    @property
    def length_s(self) -> float:
        return (self.end_ns - self.start_ns) / _NS

    def output(self) -> LevelOutput:
        """As the generator reports it."""
        recorder = Recorder(self.start_ns, self.end_ns)
        recorder.add(_records(self.due_ns, self.done_ns))
        measured = dict(vars(recorder.finish()))
        in_flight_ns = measured.pop("in_flight_ns")
        return LevelOutput(
            level=self.level,
            window_started_unix_s=0.0,
            window_s=self.length_s,
            warmup_s=WARM_UP_S,
            warmup_requests=int((self.done_ns < self.start_ns).sum()),
            settled=True,
            **measured,
            mean_in_flight=in_flight_ns / (self.end_ns - self.start_ns),
            client_cpu_s=0.0,
            server_cpu_s=None,
            server_rss_bytes=None,
            lost_server_pids=(),
            lost=0,
            cut=self.cut,
        )

    def inside(self) -> tuple[Times, Times]:
        """When due and for how long, of the requests of the window alone."""
        within = (self.due_ns >= self.start_ns) & (self.due_ns < self.end_ns)
        return self.due_ns[within] - self.start_ns, (self.done_ns - self.due_ns)[within]


def closed_window(started: Started, users: int, length_s: float) -> Window:
    """A window of a closed loop after its warm-up."""
    end_s = WARM_UP_S + length_s
    due_ns, done_ns = started.for_a_window().in_turns(users, end_s)
    return Window(users, round(WARM_UP_S * _NS), round(end_s * _NS), due_ns, done_ns)


def open_window(
    started: Started, settings: Settings, rate_rps: float, stop: StopRule, *, told: bool
) -> Window:
    """A window of a search, ended as soon as it is lost.

    With ``told`` the sentence that says why is production's; else it is short, and the moment may
    be a turn late.
    """
    load = make_load(settings.scenario, rate_rps, settings.parameters, settings.duration_s)
    assert isinstance(load, OpenLoop)
    start_ns = round(WARM_UP_S * _NS)
    end_ns = start_ns + int(settings.duration_s * _NS)
    due_ns = _until(load.arrivals(np.random.default_rng(settings.seed)), end_ns)
    done_ns = started.for_a_window().answered(due_ns)
    window = Window(rate_rps, start_ns, end_ns, due_ns, done_ns)
    lost_ns = _lost_at(window, stop)
    if lost_ns is None:
        return window
    turn = max(-(-(lost_ns - start_ns) // round(TURN_S * _NS)), 0)
    return _cut_by_outlook(window, stop, turn) if told else _cut_at(window, turn, "lost")


def _cut_at(window: Window, turn: int, why: str) -> Window:
    end_ns = window.start_ns + round((turn + 1) * TURN_S * _NS)
    return replace(window, end_ns=end_ns, cut=why) if end_ns < window.end_ns else window


def _lost_at(window: Window, stop: StopRule) -> int | None:
    """When so many have waited for longer than a limit that the upper bound must be above it."""
    within = (window.due_ns >= window.start_ns) & (window.due_ns < window.end_ns)
    due_ns, took_ns = window.due_ns[within], (window.done_ns - window.due_ns)[within]
    found = []
    for quantile, limit_ns in stop.percentiles:
        late_ns = due_ns[took_ns > limit_ns] + limit_ns
        allowed = allowed_over(len(due_ns), quantile) + int(stop.failures * len(due_ns))
        if len(late_ns) > allowed:
            found.append(int(late_ns[allowed]))
    lost_ns = min(found, default=None)
    return lost_ns if lost_ns is not None and lost_ns < window.end_ns else None


def _cut_by_outlook(window: Window, stop: StopRule, turn: int) -> Window:
    """The same asked of ``Outlook`` turn by turn, from a little before."""
    within = (window.due_ns >= window.start_ns) & (window.due_ns < window.end_ns)
    outlook = Outlook(stop, window.due_ns[within])
    records, turn_ns = _records(window.due_ns, window.done_ns), round(TURN_S * _NS)
    seen_ns = -1
    for number in range(max(turn - 3, 0), turn + 3):
        begun_ns = window.start_ns + number * turn_ns
        done_ns = records["done"]
        outlook.add(records[(done_ns > seen_ns) & (done_ns <= begun_ns + turn_ns)])
        seen_ns = begun_ns + turn_ns
        why = outlook.lost(begun_ns)
        if why is not None:
            return _cut_at(window, number, why)
    raise AssertionError("what is lost by the sum is not lost by Outlook")


def _until(arrivals: Iterable[Times], end_ns: int) -> Times:
    kept = []
    for chunk in arrivals:
        kept.append(chunk[chunk < end_ns])
        if chunk[-1] >= end_ns:
            break
    return np.concatenate(kept)


def _records(due_ns: Times, done_ns: Times) -> Records:
    records = np.zeros(len(due_ns), RECORD)
    records["due"] = records["sent"] = due_ns
    records["done"] = records["first_byte"] = done_ns
    records["outcome"] = OUTCOME["ok"]
    records["query"] = np.arange(len(due_ns))
    return records


class PlainSamples(Samples):
    """The same as from histograms, without encoding them: HDR's buckets by arithmetic.

    All requests were answered.
    """

    def __init__(self, due_ns: Times, took_ns: Times) -> None:
        """``due_ns`` are ascending and count from the window's start."""
        values = bucketed(took_ns)
        self.count = self._known = len(values)
        self._values = np.sort(values)
        self._cumulative = np.arange(1, len(values) + 1)
        self._least_given_up = None
        self._windows = [(one, np.ones(len(one), np.int64)) for one in _by_second(due_ns, values)]


def _by_second(due_ns: Times, values: Times) -> list[Times]:
    ends_ns = np.arange(1, math.ceil((due_ns[-1] + 1) / _NS)) * round(_NS)
    return np.split(values, np.searchsorted(due_ns, ends_ns))


def bucketed(took_ns: Times) -> Times:
    """The upper end of the bucket of each duration (``loadtest.histogram``)."""
    unit_bits, kept_bits = LOWEST_NS.bit_length() - 1, 11
    units = np.clip(took_ns, LOWEST_NS, HIGHEST_NS) >> unit_bits
    bits = np.frexp(units.astype(np.float64))[1]
    step = np.maximum(bits - kept_bits, 0)
    upper: Times = (((units >> step << step) + (1 << step)) << unit_bits) - 1
    return upper


def plain_trial(template: Trial, window: Window, changes: Mapping[str, object]) -> Trial:
    """Of counts alone, judged by its steadiness: of all rules the only one that can be broken."""
    due_ns, took_ns = window.inside()
    reasons = () if window.cut else _unsteady(window, due_ns, took_ns)
    outcomes = dict.fromkeys(OUTCOMES, 0) | {"ok": len(due_ns)}
    return template.model_copy(
        update={
            **changes,
            "level": window.level,
            "window_s": window.length_s,
            "planned": len(due_ns),
            "outcomes": outcomes,
            "cut": window.cut,
            "verdict": "INVALID" if reasons else "VALID",
            "reasons": reasons,
        }
    )


def _unsteady(window: Window, due_ns: Times, took_ns: Times) -> tuple[str, ...]:
    whole = int(window.length_s)
    done_s = (due_ns + took_ns) // round(_NS)
    completed = np.bincount(done_s, minlength=whole)[:whole].tolist()
    seconds = [np.sort(one) for one in _by_second(due_ns, took_ns)[:whole] if len(one)]
    typical = sorted(len(one) for one in seconds)[len(seconds) // 2]
    quantile, needed = next((tail for tail in TAILS if typical >= tail[1]), TAILS[-1])
    tails_ms = [
        float(one[max(int(quantile * len(one) + 0.5), 1) - 1]) / 1e6
        for one in seconds
        if len(one) >= needed
    ]
    return judge_steadiness(completed, tails_ms, f"p{quantile * 100:g}").reasons


def crossing_rps(
    queue: Queue, quantile: float, limit_s: float, *, requests: int = 2_000_000
) -> float:
    """The highest rate whose percentile keeps the limit, from one long window at each rate.

    All rates meet the same gaps and service times but for their scale, so the sign changes once.
    """
    low, high = 0.01 / queue.service_s, 1 / queue.service_s
    while high / low > 1.001:
        rate_rps = math.sqrt(low * high)
        gaps = np.random.default_rng(1).exponential(1 / rate_rps, requests)
        due_ns = np.rint(np.cumsum(gaps) * _NS).astype(np.int64)
        done_ns = Started(queue, np.random.default_rng(2)).answered(due_ns)
        kept = np.quantile((done_ns - due_ns)[requests // 10 :], quantile) <= limit_s * _NS
        low, high = (rate_rps, high) if kept else (low, rate_rps)
    return low
