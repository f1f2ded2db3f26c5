"""Whether one measured window may be believed, and if not, why. Pure.

The rules and their sources are told in docs/methodology.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from hdrh.histogram import HdrHistogram

from loadtest.confidence import sample_floor
from loadtest.histogram import buckets, merge
from loadtest.results import Verdict
from loadtest.scenarios import ClosedLoop, Load, OpenLoop
from loadtest.steadiness import UNSTEADY, Steadiness, judge_steadiness
from loadtest.trial import LevelOutput

CLIENT_CPU_LIMIT = 0.90
IN_FLIGHT_LIMIT = 0.95
SENT_LIMIT = 0.95
CEILING_LIMIT = 0.70
LATE_NS = 1_000_000
LATE_OF_MEDIAN = 0.05
LATE_SHARE_LIMIT = 0.01
FAILURE_LIMIT = 0.001

Cause = Literal["overload", "window", "beside"]
_CAUSES: tuple[tuple[Cause, tuple[str, ...]], ...] = (
    ("overload", ("failed requests", "requests were lost")),
    ("window", (UNSTEADY, "too few samples")),
)

_TAILS = ((0.99, 1000, "p99"), (0.90, 100, "p90"), (0.50, sample_floor(0.5), "p50"))
"""Percentile of one-second windows, the samples a window needs for it (ten beyond), its name."""


@dataclass(frozen=True)
class Judgement:
    """A verdict, the reasons for INVALID, and what a reader should know even so.

    Attributes:
        late: requests that left both more than 1 ms and more than 5% of the median late.
    """

    verdict: Verdict
    late: int
    reasons: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge(
    output: LevelOutput,
    load: Load,
    *,
    client_cpus: int,
    server_ended: str | None,
    ceiling_rps: float | None,
) -> Judgement:
    """Every rule over one window; ``ceiling_rps`` is ``None`` where it is not known."""
    service = merge(window["ok"] for window in output.service_time if "ok" in window)
    late = count_late(merge([output.lateness]), service)
    steadiness = _steadiness(output, load)
    reasons = (
        *_server_reasons(output, server_ended),
        *_answer_reasons(output),
        *_generator_reasons(output, client_cpus, ceiling_rps),
        *_schedule_reasons(output, load, late),
        *steadiness.reasons,
    )
    notes = [*steadiness.notes]
    if output.cut:
        notes.append(f"ended after {output.window_s:.1f} s: {output.cut}")
    if not output.settled:
        notes.append(f"warm-up had not settled after {output.warmup_s:.0f} s")
    if output.outcomes["not_sent"]:
        notes.append(f"{output.outcomes['not_sent']} requests were not sent")
    if output.outcomes["dropped"]:
        notes.append(f"{output.outcomes['dropped']} frames were dropped by their cameras' policy")
    return Judgement("INVALID" if reasons else "VALID", late, reasons, tuple(notes))


def cause_of(reason: str) -> Cause:
    """Of a reason for INVALID.

    ``overload``: the server did not cope. ``window``: it may have been the load, or not.
    ``beside``: the generator, a dead server or wrong answers; it says nothing of what load is kept.
    """
    return next((c for c, words in _CAUSES if any(word in reason for word in words)), "beside")


def count_late(lateness: HdrHistogram, service: HdrHistogram) -> int:
    """Requests that left later than 1 ms and than 5% of the median service time."""
    median_ns = service.get_value_at_percentile(50) if service.total_count else 0
    values, counts = buckets(lateness)
    return int(counts[values > max(LATE_NS, LATE_OF_MEDIAN * median_ns)].sum())


def _server_reasons(output: LevelOutput, server_ended: str | None) -> Iterator[str]:
    if server_ended:
        yield f"the server {server_ended} during the trial"
    elif output.lost_server_pids:
        yield f"{len(output.lost_server_pids)} server process(es) died during the trial"


def _answer_reasons(output: LevelOutput) -> Iterator[str]:
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
    if counts["ok"] < sample_floor(0.5) and not output.cut:
        yield f"too few samples: {counts['ok']} right answers in the window"


def _generator_reasons(
    output: LevelOutput, client_cpus: int, ceiling_rps: float | None
) -> Iterator[str]:
    cpu = output.client_cpu_s / (client_cpus * output.window_s)
    if cpu > CLIENT_CPU_LIMIT:
        yield f"client-bound: the generator used {cpu:.0%} of its CPU"
    rate_rps = output.sent / output.window_s
    if ceiling_rps is not None and rate_rps > CEILING_LIMIT * ceiling_rps:
        yield (
            f"client-bound: {rate_rps:,.0f} requests/s are above {CEILING_LIMIT:.0%} of the "
            f"generator's ceiling of {ceiling_rps:,.0f}/s"
        )
    if output.lost:
        yield f"client-bound: {output.lost} results came faster than they could be kept"


def _schedule_reasons(output: LevelOutput, load: Load, late: int) -> Iterator[str]:
    sent = output.sent
    # Less load than was asked for is no excuse for a window that was lost under it.
    if sent < SENT_LIMIT * (sent + output.outcomes["not_sent"]) and not output.cut:
        fell_behind = isinstance(load, OpenLoop) and load.streams
        who = "the streams fell behind" if fell_behind else "client-bound"
        yield f"{who}: {sent} of {output.planned} planned requests were sent"
    if isinstance(load, OpenLoop):
        # What waits for its stream's last reply leaves late through the server.
        if not load.streams and late > LATE_SHARE_LIMIT * sent:
            yield f"client-bound: {late / sent:.1%} of the requests left late"
        return
    users = 1 if load.together else load.users
    # Users that pause after an error are not in flight, so the check needs a run without errors.
    complete = output.outcomes["ok"] == output.planned
    if complete and output.mean_in_flight < IN_FLIGHT_LIMIT * users:
        yield (
            f"client-bound: {output.mean_in_flight:.2f} requests were in flight on average, "
            f"not {users}"
        )


def _steadiness(output: LevelOutput, load: Load) -> Steadiness:
    if output.cut or (isinstance(load, OpenLoop) and not load.stationary):
        return Steadiness()
    whole = int(output.window_s)
    windows = [merge([w["ok"]]) for w in output.response_time[:whole] if "ok" in w]
    if isinstance(load, ClosedLoop) and load.requests is not None:
        windows = []
    quantile, needed, name = _tail_for(windows)
    tails_ms = [
        window.get_value_at_percentile(quantile * 100) / 1e6
        for window in windows
        if window.total_count >= needed
    ]
    return judge_steadiness(output.completed[:whole], tails_ms, name)


def _tail_for(windows: Sequence[HdrHistogram]) -> tuple[float, int, str]:
    """The highest percentile that at least half of the windows can show."""
    counts = sorted(window.total_count for window in windows)
    typical = counts[len(counts) // 2] if counts else 0
    return next((tail for tail in _TAILS if typical >= tail[1]), _TAILS[-1])
