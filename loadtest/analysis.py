"""From trials and histograms to points, verdicts and a ranking. Pure: files in, values out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from hdrh.histogram import HdrHistogram

from loadtest.recorder import merge
from loadtest.results import (
    BackendRecord,
    BackendSummary,
    Histograms,
    Manifest,
    Percentiles,
    Point,
    Rank,
    Ranking,
    Summary,
    Trial,
    Verdict,
)
from loadtest.trial import TrialOutput

CONFIDENCE = 0.99
CLIENT_CPU_LIMIT = 0.90
IN_FLIGHT_LIMIT = 0.95
FAILURE_LIMIT = 0.001
LEAST_REPEATS_FOR_A_WINNER = 3
"""Three values all above three others happen by chance once in 6! / (3! 3!) = 20 orders."""

_NS_PER_MS = 1e6


def sample_floor(quantile: float) -> int:
    """Fewest samples for an upper bound on ``quantile`` at 99% confidence.

    With n samples the largest exceeds the quantile q with probability 1 - q**n (order statistics,
    distribution-free): 44 for p90, 90 for p95, 459 for p99, 4,603 for p99.9.
    """
    return math.ceil(math.log(1 - CONFIDENCE) / math.log(quantile))


@dataclass(frozen=True)
class Judgement:
    """A verdict, the reasons for INVALID, and what a reader should know even so."""

    verdict: Verdict
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge(
    output: TrialOutput, *, concurrency: int, client_cpus: int, server_ended: str | None
) -> Judgement:
    """Whether one closed-loop window may be believed."""
    reasons = [*_server_reasons(output, server_ended), *_answer_reasons(output)]
    failed = output.sent - output.outcomes["ok"]
    cpu = output.client_cpu_s / (client_cpus * output.window_s)
    if cpu > CLIENT_CPU_LIMIT:
        reasons.append(f"client-bound: the generator used {cpu:.0%} of its CPU")
    # Users that pause after an error are not in flight, so the check needs a run without errors.
    if not failed and output.mean_in_flight < IN_FLIGHT_LIMIT * concurrency:
        reasons.append(
            f"client-bound: {output.mean_in_flight:.2f} requests were in flight on average, "
            f"not {concurrency}"
        )
    if output.outcomes["ok"] < sample_floor(0.5):
        reasons.append(f"too few samples: {output.outcomes['ok']} right answers in the window")
    return Judgement("INVALID" if reasons else "VALID", tuple(reasons))


def _server_reasons(output: TrialOutput, server_ended: str | None) -> Iterable[str]:
    if server_ended:
        yield f"the server {server_ended} during the trial"
    elif output.lost_server_pids:
        yield f"{len(output.lost_server_pids)} server process(es) died during the trial"


def _answer_reasons(output: TrialOutput) -> Iterable[str]:
    counts = output.outcomes
    if counts["wrong_answer"]:
        yield f"{counts['wrong_answer']} wrong answers"
    lost = counts["connection_error"] + counts["unfinished"]
    if lost:
        yield f"{lost} requests were lost (connection error or unfinished)"
    refused = {
        name: counts[name]
        for name in ("client_fault_4xx", "server_fault_5xx", "timeout")
        if counts[name]
    }
    if sum(refused.values()) > FAILURE_LIMIT * output.sent:
        yield "failed requests: " + ", ".join(f"{n} {name}" for name, n in refused.items())


def percentiles_ms(histogram: HdrHistogram) -> Percentiles:
    """Percentiles in milliseconds; ``None`` below the sample floor."""

    def at(quantile: float) -> float | None:
        if histogram.total_count < sample_floor(quantile):
            return None
        return float(histogram.get_value_at_percentile(quantile * 100)) / _NS_PER_MS

    return Percentiles(p50=at(0.5), p90=at(0.9), p95=at(0.95), p99=at(0.99), p99_9=at(0.999))


HistogramReader = Callable[[str], Histograms]


def point_of(trials: Sequence[Trial], read: HistogramReader) -> Point:
    """One backend at one concurrency. It is VALID when most of its repeats are."""
    valid = [trial for trial in trials if trial.verdict == "VALID"]
    verdict: Verdict = "VALID" if 2 * len(valid) > len(trials) else "INVALID"
    reasons = Counter(reason for trial in trials for reason in trial.reasons)
    told = tuple(f"{text} ({n} of {len(trials)} repeats)" for text, n in reasons.items())
    notes = tuple(dict.fromkeys(note for trial in trials for note in trial.notes))
    histograms = [read(trial.id) for trial in valid]
    response = merge([w["ok"] for h in histograms for w in h.response_time if "ok" in w])
    service = merge([w["ok"] for h in histograms for w in h.service_time if "ok" in w])
    rates = [trial.outcomes["ok"] / trial.window_s for trial in valid]
    rows = trials[0].rows_per_request
    outcomes: Counter[str] = Counter()
    for trial in trials:
        outcomes.update(trial.outcomes)
    return Point(
        scenario=trials[0].scenario,
        concurrency=trials[0].concurrency,
        repeats=len(trials),
        samples=response.total_count,
        requests_per_s=median(rates) if rates else None,
        inferences_per_s=median(rates) * rows if rates else None,
        inferences_per_s_range=(min(rates) * rows, max(rates) * rows) if rates else None,
        response_time_ms=percentiles_ms(response),
        service_time_ms=percentiles_ms(service),
        largest_response_ms=response.get_max_value() / _NS_PER_MS if rates else None,
        outcomes=dict(outcomes),
        client_cpu=_median(trial.client_cpu for trial in valid),
        server_cpu=_median(trial.server_cpu for trial in valid),
        server_rss_bytes=_largest(trial.server_rss_bytes for trial in valid),
        verdict=verdict,
        reasons=told if verdict == "INVALID" else (),
        notes=notes if verdict == "INVALID" else (*notes, *told),
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _largest(values: Iterable[int | None]) -> int | None:
    return max((value for value in values if value is not None), default=None)


def rank(backends: Sequence[BackendSummary], exempt: frozenset[str]) -> Ranking:
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
    winner, sentence = _decide(rows, repeats)
    return Ranking(winner=winner, sentence=sentence, rows=tuple(rows), unranked=unranked)


def _best(backend: BackendSummary) -> Rank | None:
    valid = [point for point in backend.points if point.verdict == "VALID"]
    if not valid:
        return None
    best = max(valid, key=lambda point: point.inferences_per_s or 0.0)
    if best.inferences_per_s is None or best.inferences_per_s_range is None:
        return None
    return Rank(
        backend=backend.label,
        concurrency=best.concurrency,
        inferences_per_s=best.inferences_per_s,
        inferences_per_s_range=best.inferences_per_s_range,
        p99_ms=best.response_time_ms.p99,
    )


def _decide(rows: Sequence[Rank], repeats: int) -> tuple[str | None, str]:
    if not rows:
        return None, "No backend has a VALID point, so there is no answer."
    first = rows[0]
    told = f"{first.inferences_per_s:.1f} inferences/s at concurrency {first.concurrency}"
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
            for concurrency in settings.concurrency
            if (at := [trial for trial in own if trial.concurrency == concurrency])
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
    per_backend = len(settings.concurrency) * settings.repeats
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
        ranking=rank(backends, exempt),
    )
