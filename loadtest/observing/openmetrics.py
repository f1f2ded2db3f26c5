"""A finished run as OpenMetrics text: the metrics that were published live, made from its files.

Names, labels and buckets are those of ``loadtest.metrics``. Every counter and histogram has a
sample at the start of each measured window, zero before the first, and one at the end of each of
its seconds; they add up over the whole run. A request is counted in the second in which it was due.

What the HDR histograms allow (``loadtest.histogram``): a value at a bound is counted at or below
it, and so is one that lies above it by less than 0.1% or 512 ns, whichever is more. The sum of
durations takes each at the middle of its HDR bucket: within 0.05% or 256 ns of each; what was below
1 us counts as 1 us, what was above 10 min as 10 min. Requests that were not sent, and the lateness,
are known per window only: they are added at its end.

The format is https://github.com/prometheus/OpenMetrics/blob/v1.0.0/specification/OpenMetrics.md.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import BinaryIO, Protocol

import numpy as np
import numpy.typing as npt

from loadtest.histogram import merge, new_histogram
from loadtest.live import IDLE, MEASURING
from loadtest.metrics import (
    CEILING,
    DUE,
    LATENESS,
    LEVEL,
    PHASE,
    REQUESTS,
    RESPONSE,
    SERVICE,
    SLO,
    TRIALS,
    WITHIN_SLO,
)
from loadtest.observing.finished import (
    LEAST_GAP_MS,
    FinishedRun,
    Labels,
    MeasuredWindow,
    Target,
)
from loadtest.resources.families import families as rows_of
from loadtest.resources.log import read_samples
from loadtest.results import (
    IN_PERCENTILES,
    NEVER_SENT,
    OUTCOMES,
    VERDICTS,
    Histograms,
    Window,
)
from serving.metrics.table import Metric

Counts = npt.NDArray[np.int64]
Progress = Callable[[int, int], None]
"""Is told how many parts of how many are done."""

_WITH_DURATION = tuple(outcome for outcome in OUTCOMES if outcome not in NEVER_SENT)


@cache
def _cells() -> tuple[Counts, Counts]:
    """Lowest value and middle of each bucket of an HDR histogram, ns."""
    layout = new_histogram()
    lowest = np.array([layout.get_value_from_index(i) for i in range(layout.counts_len)], np.int64)
    width = np.diff(lowest)
    return lowest, lowest + np.append(width, width[-1]) // 2


@cache
def _places(bounds_ns: tuple[int, ...]) -> Counts:
    return np.searchsorted(bounds_ns, _cells()[0]).astype(np.int64)


def in_buckets(encoded: str | None, bounds_ns: tuple[int, ...]) -> tuple[Counts, int]:
    """An encoded HDR histogram in other buckets.

    Args:
        encoded: as ``loadtest.histogram.encode`` makes it; ``None`` for an empty one.
        bounds_ns: ascending upper bounds.

    Returns:
        Counts, one more than bounds: the last is of what is above all. And the sum of values, ns.
    """
    if encoded is None:
        return np.zeros(len(bounds_ns) + 1, np.int64), 0
    counts = np.ctypeslib.as_array(merge([encoded]).counts).astype(np.int64)
    found = np.zeros(len(bounds_ns) + 1, np.int64)
    np.add.at(found, _places(bounds_ns), counts)
    return found, int(counts @ _cells()[1])


class _Series(Protocol):
    def lines(self, metric: Metric, windows: Iterable[MeasuredWindow]) -> Iterator[str]:
        """Samples over ``windows`` in the order of their times."""
        ...


@dataclass(frozen=True)
class _Counter:
    """``added``: how many came in each second of a window."""

    labels: Labels
    added: Callable[[MeasuredWindow], Sequence[int]]

    def lines(self, metric: Metric, windows: Iterable[MeasuredWindow]) -> Iterator[str]:
        start, total = metric.sample + _braces(self.labels), 0
        for window in windows:
            yield _sample(start, total, window.start_ms)
            for ms, count in zip(window.ticks_ms, self.added(window), strict=True):
                total += count
                yield _sample(start, total, ms)


@dataclass(frozen=True)
class _Gauge:
    """``value``: in a window, ``None`` where not known; ``after``: from its end on."""

    labels: Labels
    value: Callable[[MeasuredWindow], float | None]
    after: float | None = None

    def lines(self, metric: Metric, windows: Iterable[MeasuredWindow]) -> Iterator[str]:
        start = metric.sample + _braces(self.labels)
        for window in windows:
            if (value := self.value(window)) is not None:
                for ms in (window.start_ms, *window.ticks_ms[:-1]):
                    yield _sample(start, _number(value), ms)
                last = value if self.after is None else self.after
                yield _sample(start, _number(last), window.ticks_ms[-1])


@dataclass(frozen=True)
class _Distribution:
    """``encoded``: the HDR histogram of each second of a window."""

    labels: Labels
    bounds_ns: tuple[int, ...]
    encoded: Callable[[MeasuredWindow], Iterable[str | None]]

    def lines(self, metric: Metric, windows: Iterable[MeasuredWindow]) -> Iterator[str]:
        bounds = [*(repr(bound / 1e9) for bound in self.bounds_ns), "+Inf"]
        starts = [f"{metric.sample}_bucket{_braces({**self.labels, 'le': le})}" for le in bounds]
        ends = [f"{metric.sample}_{part}{_braces(self.labels)}" for part in ("count", "sum")]
        total, sum_ns = np.zeros(len(bounds), np.int64), 0

        def samples(ms: int) -> Iterator[str]:
            up_to = np.cumsum(total).tolist()
            values = (*up_to, up_to[-1], repr(sum_ns / 1e9))
            for start, value in zip((*starts, *ends), values, strict=True):
                yield _sample(start, value, ms)

        for window in windows:
            yield from samples(window.start_ms)
            for ms, encoded in zip(window.ticks_ms, self.encoded(window), strict=True):
                counts, more_ns = in_buckets(encoded, self.bounds_ns)
                total += counts
                sum_ns += more_ns
                yield from samples(ms)


def _requests(target: Target) -> Iterator[_Series]:
    for outcome in OUTCOMES:
        yield _Counter({**target.labels, "outcome": outcome}, partial(_ended_so, outcome))


def _ended_so(outcome: str, window: MeasuredWindow) -> list[int]:
    return window.requests[outcome]


def _due(target: Target) -> Iterator[_Series]:
    yield _Counter(
        target.labels,
        lambda window: [sum(counts) for counts in zip(*window.requests.values(), strict=True)],
    )


def _within_slo(target: Target) -> Iterator[_Series]:
    slo_ns = target.slo_ns
    if slo_ns is not None:
        yield _Counter(
            target.labels,
            lambda window: [
                int(in_buckets(second.get("ok"), (slo_ns,))[0][0])
                for second in window.histograms().response_time
            ],
        )


def _slo(target: Target) -> Iterator[_Series]:
    slo_ns = target.slo_ns
    if slo_ns is not None:
        yield _Gauge(target.labels, lambda _: slo_ns / 1e9)


def _durations(of: Callable[[Histograms], Sequence[Window]], target: Target) -> Iterator[_Series]:
    """Of what percentiles are made of, and of the other outcomes that this backend had."""
    for outcome in _WITH_DURATION:
        if outcome in IN_PERCENTILES or any(
            window.trial.outcomes[outcome] for window in target.windows
        ):
            labels = {**target.labels, "outcome": outcome}
            seconds = partial(_of_outcome, of, outcome)
            yield _Distribution(labels, target.bounds_ns, seconds)


def _of_outcome(
    of: Callable[[Histograms], Sequence[Window]], outcome: str, window: MeasuredWindow
) -> Iterator[str | None]:
    for second in of(window.histograms()):
        yield second.get(outcome)


def _lateness(target: Target) -> Iterator[_Series]:
    yield _Distribution(
        target.labels,
        target.bounds_ns,
        lambda window: [*(None for _ in window.ticks_ms[1:]), window.histograms().lateness],
    )


def _level(target: Target) -> Iterator[_Series]:
    # Text can hold no staleness marker; no number is what a chart leaves empty.
    yield _Gauge(target.labels, lambda window: window.trial.level, after=math.nan)


def _phase(target: Target) -> Iterator[_Series]:
    yield _Gauge(target.labels, lambda _: MEASURING, after=IDLE)


def _ceiling(target: Target) -> Iterator[_Series]:
    if any(window.trial.ceiling_rps is not None for window in target.windows):
        yield _Gauge(target.labels, lambda window: window.trial.ceiling_rps)


def _trials(target: Target) -> Iterator[_Series]:
    for verdict in VERDICTS:
        yield _Counter({**target.labels, "verdict": verdict}, partial(_judged, verdict))


def _judged(verdict: str, window: MeasuredWindow) -> list[int]:
    return [*(0 for _ in window.ticks_ms[1:]), int(window.trial.verdict == verdict)]


FAMILIES: tuple[tuple[Metric, Callable[[Target], Iterator[_Series]]], ...] = (
    (REQUESTS, _requests),
    (DUE, _due),
    (WITHIN_SLO, _within_slo),
    (SLO, _slo),
    (RESPONSE, partial(_durations, lambda found: found.response_time)),
    (SERVICE, partial(_durations, lambda found: found.service_time)),
    (LATENESS, _lateness),
    (LEVEL, _level),
    (PHASE, _phase),
    (CEILING, _ceiling),
    (TRIALS, _trials),
)
"""What is written, in this order: a metric and its series of one target."""


def lines(run: FinishedRun, progress: Progress = lambda _done, _total: None) -> Iterator[str]:
    """The text, line by line; no more than one trial's histograms are in memory at a time.

    Raises:
        ResultsError: a trial's histograms are missing, damaged, or not what the trial counted.
    """
    families = [
        (metric, [(target, series) for target in run.targets for series in make(target)])
        for metric, make in FAMILIES
    ]
    total = sum(len(target.windows) for _, all_series in families for target, _ in all_series)
    done = 0

    def counted(windows: Sequence[MeasuredWindow]) -> Iterator[MeasuredWindow]:
        nonlocal done
        for window in windows:
            yield window
            done += 1
            progress(done, total)

    for metric, all_series in families:
        if all_series:
            yield from _head(metric)
        for target, series in all_series:
            yield from series.lines(metric, counted(target.windows))
    yield from _resources(run)
    yield "# EOF\n"


def _head(metric: Metric) -> Iterator[str]:
    yield f"# TYPE {metric.name} {metric.kind}\n"
    if metric.name.endswith(f"_{metric.unit}"):
        yield f"# UNIT {metric.name} {metric.unit}\n"
    yield f"# HELP {metric.name} {_escaped(metric.help)}\n"


def _resources(run: FinishedRun) -> Iterator[str]:
    """What was sampled beside the run, at the moments at which it was."""
    found: dict[Metric, dict[tuple[str, ...], list[tuple[int, float]]]] = {}
    for sample in read_samples(run.folder.resources):
        ms = round(sample.unix_s * 1e3)
        for metric, labels, value in rows_of(sample, run.name):
            series = found.setdefault(metric, {}).setdefault(labels, [])
            # Two samples may have been asked for at once; times of a series must rise.
            if not series or ms >= series[-1][0] + LEAST_GAP_MS:
                series.append((ms, value))
    for metric, all_series in found.items():
        yield from _head(metric)
        for labels, points in all_series.items():
            start = f"{metric.sample}{_braces(dict(zip(metric.labels, labels, strict=True)))}"
            yield from (_sample(start, _number(value), ms) for ms, value in points)


def write_text(
    run: FinishedRun, stream: BinaryIO, progress: Progress = lambda _done, _total: None
) -> None:
    """``lines`` in UTF-8."""
    stream.writelines(line.encode() for line in lines(run, progress))


def _braces(labels: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _number(value: float) -> str:
    return "NaN" if math.isnan(value) else repr(float(value))


def _sample(start: str, value: int | str, ms: int) -> str:
    return f"{start} {value} {ms // 1000}.{ms % 1000:03d}\n"
