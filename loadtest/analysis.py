"""From trials and histograms to points and a ranking. Pure: files in, values out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import TypeVar

from hdrh.histogram import HdrHistogram

from loadtest.confidence import Bounded, Samples
from loadtest.histogram import merge
from loadtest.results import (
    GIVEN_UP,
    IN_PERCENTILES,
    BackendRecord,
    BackendSummary,
    Histograms,
    Manifest,
    Percentiles,
    Point,
    Quantile,
    Rank,
    Ranking,
    Summary,
    Trial,
    Verdict,
    Window,
)

LEAST_REPEATS_FOR_A_WINNER = 3
"""Three values all above three others happen by chance once in 6! / (3! 3!) = 20 orders."""

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
        resources=_middle_trial(shown).resources,
        verdict=verdict,
        reasons=told if verdict == "INVALID" else (),
        notes=notes if verdict == "INVALID" else (*notes, *told),
    )


def _middle_trial(trials: Sequence[Trial]) -> Trial:
    """What one window used belongs together, so it is one window's, and no mixture."""
    by_rate = sorted(trials, key=lambda trial: trial.outcomes["ok"] / trial.window_s)
    return by_rate[(len(by_rate) - 1) // 2]


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _largest(values: Iterable[N | None]) -> N | None:
    return max((value for value in values if value is not None), default=None)


def rank(
    backends: Sequence[BackendSummary], exempt: frozenset[str], level_name: str = "users"
) -> Ranking:
    """Backends by their best VALID point; a winner only where repeats do not overlap.

    ``exempt`` backends do not compute answers and are never ranked.
    """
    rows, unranked = [], {}
    for backend in backends:
        row = _best(backend)
        if backend.label in exempt:
            unranked[backend.label] = "it does not compute answers: the harness's own ceiling"
        elif backend.excluded:
            unranked[backend.label] = backend.excluded
        elif row is None:
            unranked[backend.label] = "no VALID point"
        else:
            rows.append(row)
    rows.sort(key=lambda row: row.inferences_per_s, reverse=True)
    repeats = min((p.repeats for b in backends for p in b.points), default=0)
    winner, sentence = _decide(rows, repeats, level_name)
    return Ranking(winner=winner, sentence=sentence, rows=tuple(rows), unranked=unranked)


def _best(backend: BackendSummary) -> Rank | None:
    valid = [point for point in backend.points if point.verdict == "VALID"]
    if not valid:
        return None
    best = max(valid, key=lambda point: point.inferences_per_s)
    return Rank(
        backend=backend.label,
        level=best.level,
        inferences_per_s=best.inferences_per_s,
        inferences_per_s_range=best.inferences_per_s_range,
        p99_ms=best.response_time_ms.p99.value_ms if best.response_time_ms.p99 else None,
    )


def _decide(rows: Sequence[Rank], repeats: int, level_name: str) -> tuple[str | None, str]:
    if not rows:
        return None, "No backend has a VALID point, so there is no answer."
    first = rows[0]
    told = f"{first.inferences_per_s:.1f} inferences/s at {first.level:g} {level_name}"
    if len(rows) == 1:
        return None, f"Only {first.backend} could be ranked: {told}."
    second = rows[1]
    ratio = first.inferences_per_s / second.inferences_per_s
    if repeats < LEAST_REPEATS_FOR_A_WINNER:
        return None, (
            f"{first.backend} leads with {told}, {ratio:.2f} times {second.backend}, but fewer "
            f"than {LEAST_REPEATS_FOR_A_WINNER} repeats cannot tell that from chance."
        )
    if first.inferences_per_s_range[0] > second.inferences_per_s_range[1]:
        return first.backend, (
            f"{first.backend} serves most: {told}, {ratio:.2f} times {second.backend}; "
            "none of their repeats overlap."
        )
    tied = [first.backend]
    for row in rows[1:]:
        if row.inferences_per_s_range[1] >= first.inferences_per_s_range[0]:
            tied.append(row.backend)
    return None, (
        f"No significant difference between {', '.join(tied[:-1])} and {tied[-1]}: "
        f"their repeats overlap around {told}."
    )


def summarise(
    manifest: Manifest,
    records: Mapping[str, BackendRecord],
    trials: Sequence[Trial],
    read: HistogramReader,
    *,
    exempt: frozenset[str],
) -> Summary:
    """Everything that the report shows, from what the run wrote."""
    settings = manifest.settings
    backends = []
    for label in settings.backends:
        record = records.get(label)
        own = [trial for trial in trials if trial.backend == label]
        points = tuple(
            point_of(at, read)
            for level in settings.levels
            if (at := [trial for trial in own if trial.level == level])
        )
        backends.append(
            BackendSummary(
                label=label,
                facts=record.facts if record else {},
                warnings=record.warnings if record else (),
                parity=record.parity if record else None,
                start_s=record.start_s if record else None,
                excluded=record.excluded if record else None,
                points=points,
            )
        )
    per_backend = len(settings.levels) * settings.repeats
    missing = sum(
        per_backend - sum(trial.backend == backend.label for trial in trials)
        for backend in backends
        if not backend.excluded
    )
    return Summary(
        manifest=manifest,
        complete=missing == 0,
        planned_trials=settings.planned_trials,
        finished_trials=len(trials),
        backends=tuple(backends),
        ranking=rank(backends, exempt, settings.level_name),
    )
