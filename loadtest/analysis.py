"""From trials and histograms to points and a ranking. Pure: files in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import TypeVar

from hdrh.histogram import HdrHistogram

from loadtest.breakdown import breakdown_of
from loadtest.confidence import Bounded, Samples
from loadtest.delivered import FramesRecord
from loadtest.delivery import Repeat, of_repeats
from loadtest.histogram import merge
from loadtest.results import (
    GIVEN_UP,
    IN_PERCENTILES,
    Histograms,
    Percentiles,
    Point,
    Quantile,
    Trial,
    Verdict,
    Window,
)

QUANTILES = {
    "p50": 0.5,
    "p90": 0.9,
    "p95": 0.95,
    "p99": 0.99,
    "p99_9": 0.999,
    "p99_99": 0.9999,
}
"""By the fields of ``Percentiles``."""


def percentile_name(field: str) -> str:
    """As people write it: ``p99.9``."""
    return field.replace("_", ".")


PERCENTILES = {percentile_name(field): quantile for field, quantile in QUANTILES.items()}
"""By the names that people write."""

_FAULTS = ("wrong_answer", "client_fault_4xx", "server_fault_5xx", "connection_error")
_NS_PER_MS = 1e6

N = TypeVar("N", int, float)


def _merged(windows: Iterable[Window], outcomes: Sequence[str]) -> HdrHistogram:
    return merge(window[name] for window in windows for name in outcomes if name in window)


def samples_of(windows: Sequence[Window], not_sent: int = 0) -> Samples:
    """Right answers and waits that were given up, from the windows of one or more trials.

    ``not_sent`` requests would have waited, nobody knows how long: they stand at the far end.
    """
    answered, given_up = _merged(windows, ["ok"]), _merged(windows, GIVEN_UP)
    each = [_merged([window], IN_PERCENTILES) for window in windows]
    return Samples(answered, given_up, each, not_sent)


def percentiles_ms(samples: Samples) -> Percentiles:
    """Every percentile that the samples can bound."""
    return Percentiles(**{name: _quantile(samples.percentile(q)) for name, q in QUANTILES.items()})


def _quantile(found: Bounded | None) -> Quantile | None:
    if found is None:
        return None
    high_ms = None if found.high is None else found.high / _NS_PER_MS
    return Quantile(
        value_ms=found.value / _NS_PER_MS,
        low_ms=found.low / _NS_PER_MS,
        high_ms=high_ms,
        at_least=found.at_least,
    )


def _middle_ms(histogram: HdrHistogram) -> float | None:
    if not histogram.total_count:
        return None
    return float(histogram.get_value_at_percentile(50)) / _NS_PER_MS


HistogramReader = Callable[[str], Histograms]


def point_of(trials: Sequence[Trial], read: HistogramReader) -> Point:
    """One backend at one level. It is VALID when most of its repeats are."""
    valid = [trial for trial in trials if trial.verdict == "VALID"]
    verdict: Verdict = "VALID" if 2 * len(valid) > len(trials) else "INVALID"
    reasons = Counter(reason for trial in trials for reason in trial.reasons)
    told = tuple(f"{text} ({n} of {len(trials)} repeats)" for text, n in reasons.items())
    notes = tuple(dict.fromkeys(note for trial in trials for note in trial.notes))
    shown = valid or trials
    histograms = [read(trial.id) for trial in shown]
    response = [window for h in histograms for window in h.response_time]
    service = [window for h in histograms for window in h.service_time]
    samples = samples_of(response, sum(trial.outcomes["not_sent"] for trial in shown))
    rates = [trial.outcomes["ok"] / trial.window_s for trial in shown]
    rows = trials[0].rows_per_request
    outcomes: Counter[str] = Counter()
    for trial in trials:
        outcomes.update(trial.outcomes)
    return Point(
        scenario=trials[0].scenario,
        level=trials[0].level,
        repeats=len(trials),
        samples=samples.count,
        planned_per_s=median(trial.planned / trial.window_s for trial in trials),
        requests_per_s=median(rates),
        inferences_per_s=median(rates) * rows,
        inferences_per_s_range=(min(rates) * rows, max(rates) * rows),
        inferences_per_s_repeats=tuple(rate * rows for rate in rates) if valid else (),
        response_time_ms=percentiles_ms(samples),
        service_time_ms=percentiles_ms(samples_of(service)),
        failure_response_ms=_middle_ms(_merged(response, _FAULTS)),
        first_byte_p50_ms=_middle_ms(merge(h.first_byte for h in histograms)),
        lateness_p99_ms=_largest(trial.lateness_p99_ms for trial in shown),
        largest_response_ms=samples.largest / _NS_PER_MS if samples.count else None,
        outcomes=dict(outcomes),
        warmup_s=max(trial.warmup_s for trial in trials),
        client_cpu=_median(trial.client_cpu for trial in shown),
        server_cpu=_median(trial.server_cpu for trial in shown),
        server_rss_bytes=_largest(trial.server_rss_bytes for trial in shown),
        resources=middle_trial(shown).resources,
        frames=_frames(shown, histograms),
        breakdown=breakdown_of(list(zip(valid, histograms, strict=True))) if valid else None,
        verdict=verdict,
        reasons=told if verdict == "INVALID" else (),
        notes=notes if verdict == "INVALID" else (*notes, *told),
    )


def _frames(trials: Sequence[Trial], histograms: Sequence[Histograms]) -> FramesRecord | None:
    """``None`` where a trial has none."""
    repeats = [
        Repeat(trial.frames, own.ages, trial.window_s)
        for trial, own in zip(trials, histograms, strict=True)
        if trial.frames
    ]
    return of_repeats(repeats) if len(repeats) == len(trials) else None


def middle_trial(trials: Sequence[Trial]) -> Trial:
    """What one window used belongs together, so it is one window's, and no mixture."""
    by_rate = sorted(trials, key=lambda trial: trial.outcomes["ok"] / trial.window_s)
    return by_rate[(len(by_rate) - 1) // 2]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _largest(values: Iterable[N | None]) -> N | None:
    return max((value for value in values if value is not None), default=None)
