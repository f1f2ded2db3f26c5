"""Where the mean response time of right answers went. Pure: counters and histograms in, parts out.

Only means are divided: means of parts add up to the mean of the whole, percentiles do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean

import numpy as np

from loadtest.counters import FRONT_HALF
from loadtest.explained import Breakdown, ServerTimings
from loadtest.histogram import buckets, merge
from loadtest.results import Histograms, Trial

PARTS = (
    "waiting to be sent",
    "client and wire",
    "front half",
    "queue and batching",
    "compute input",
    "compute",
    "compute output",
    "rest",
)
"""In the order of a request's way; the rest is what no other part explains."""
TOLERATED_SHARE = 0.05
_EDGES_S = 0.2
"""How far from a window's edges its counters may have been read."""
_PHASES = (FRONT_HALF, "queue", "compute_input", "compute", "compute_output")
_IN_SERVER = dict(zip(_PHASES, PARTS[2:7], strict=True))
_WAITING, _WIRE, FRONT, _REST = PARTS[0], PARTS[1], PARTS[2], PARTS[-1]
_MS = 1e6

Window = tuple[Trial, Histograms]


def mean_ns(encoded: Iterable[str]) -> float | None:
    """Mean of all that encoded histograms hold; ``None`` where that is nothing.

    Each value counts as the middle of its bucket, so that rounding adds no bias.
    """
    total = merge(encoded)
    upper, counts = buckets(total)
    if not len(upper):
        return None
    lower = np.array([total.get_lowest_equivalent_value(int(value)) for value in upper])
    return float(np.average((lower + upper) / 2, weights=counts))


def breakdown_of(windows: Sequence[Window]) -> Breakdown | None:
    """Of one or more windows of one point, counters added up; ``None`` without a right answer."""
    told = [window for window in windows if window[0].server_timings]
    chosen = told or list(windows)
    requests = sum(trial.outcomes["ok"] for trial, _ in chosen)
    response_ns = mean_ns(_right(h.response_time for _, h in chosen))
    service_ns = mean_ns(_right(h.service_time for _, h in chosen))
    if response_ns is None or service_ns is None:
        return None
    server = [trial.server_timings for trial, _ in told if trial.server_timings]
    phases_ms = _phases_ms(server)
    floors = [trial.floor_ms for trial, _ in chosen if trial.floor_ms is not None]
    mean_ms = response_ns / _MS
    parts = divide(mean_ms, service_ns / _MS, fmean(floors) if floors else None, phases_ms)
    gap_share = max(sum(parts.values()) / mean_ms - 1, 0.0)
    executions = sum(timings.executions for timings in server)
    encoding = [trial.encode_ns for trial, _ in chosen if trial.encode_ns is not None]
    return Breakdown(
        mean_response_ms=mean_ms,
        parts=tuple(parts.items()),
        adds_up=gap_share <= TOLERATED_SHARE,
        gap_share=gap_share,
        requests=requests,
        rows_per_batch=sum(t.rows for t in server) / executions if executions else None,
        encode_ns=fmean(encoding) if encoding else None,
        notes=tuple(_notes(windows, told, has_floor=bool(floors))),
    )


def divide(
    response_ms: float, service_ms: float, floor_ms: float | None, phases_ms: Mapping[str, float]
) -> dict[str, float]:
    """Milliseconds by ``PARTS``, without those that are not known. The rest is never below zero.

    ``floor_ms`` is what a like request takes on the null server: no more of it counts than the
    server leaves of the service time, since it was measured at another moment. ``phases_ms`` is
    what the server tells, by the phases of ``ServerTimings`` but without the total.
    """
    parts = {_WAITING: max(response_ms - service_ms, 0.0)}
    if floor_ms is not None:
        parts[_WIRE] = min(floor_ms, max(service_ms - sum(phases_ms.values()), 0.0))
    parts |= {name: phases_ms[phase] for phase, name in _IN_SERVER.items() if phase in phases_ms}
    explained_ms = sum(parts.values()) - parts[_WAITING]
    return {**parts, _REST: max(service_ms - explained_ms, 0.0)}


def _right(seconds: Iterable[Sequence[Mapping[str, str]]]) -> Iterable[str]:
    return (second["ok"] for window in seconds for second in window if "ok" in second)


def _phases_ms(windows: Sequence[ServerTimings]) -> dict[str, float]:
    """Mean per request of each phase, over all windows."""
    names = dict.fromkeys(name for window in windows for name in window.phases)
    means = {}
    for name in names:
        totals = [window.phases[name] for window in windows if name in window.phases]
        count = sum(total.count for total in totals)
        if count:
            means[name] = sum(total.ns for total in totals) / count / _MS
    total_ms = means.pop("total", None)
    if means and total_ms is not None and "compute_output" not in means:
        means["compute_output"] = max(total_ms - sum(means.values()), 0.0)
    return means


def _notes(windows: Sequence[Window], told: Sequence[Window], *, has_floor: bool) -> Iterable[str]:
    """What a reader must know of these parts, in words."""
    if not told:
        reasons = dict.fromkeys(trial.server_timings_missing for trial, _ in windows)
        why = "; ".join(reason for reason in reasons if reason) or "none were taken"
        yield f"The server does not tell its timings ({why}), so all its time is in the rest."
    elif len(told) < len(windows):
        yield f"Only {len(told)} of {len(windows)} VALID repeats have the server's timings."
    if not has_floor:
        yield "What the null server takes is not known, so client and wire are in the rest."
    if told:
        yield "A server that batches counts its batcher's delay as queue; nothing tells them apart."
    if any(t.server_timings and "compute_output" not in t.server_timings.phases for t, _ in told):
        yield (
            "The server tells no input and output: what is done before its queue is in the rest, "
            "what is done for a request besides waiting and computing is in compute output."
        )
    if any(trial.scenario == "multi-stream" for trial, _ in windows):
        yield "A query is several requests; the server's parts are those of a single one."
    yield from _miscount(told)


def _miscount(told: Sequence[Window]) -> Iterable[str]:
    counted = sum(trial.server_timings.rows for trial, _ in told if trial.server_timings)
    right = sum(trial.outcomes["ok"] * trial.rows_per_request for trial, _ in told)
    edges = sum(
        _EDGES_S / trial.window_s * trial.outcomes["ok"] * trial.rows_per_request
        for trial, _ in told
    )
    if told and abs(counted - right) > TOLERATED_SHARE * right + edges:
        yield (
            f"The server counted {counted:,} rows and {right:,} were answered rightly in the "
            "window, so its means are of other requests too."
        )
