"""Profilers' events to operators by time. Pure.

The trace of ONNX Runtime is in Chrome's format, with one ``Node`` event for every call of a kernel
and a ``model_run`` around those of one run:
https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from loadtest.profiling.record import Operator
from loadtest.profiling.runs import Kernel

Event = Mapping[str, Any]

_KERNEL = "_kernel_time"
_US_PER_MS = 1e3


class NoRunsError(ValueError):
    """The trace has no run behind its warm-up."""


@dataclass(frozen=True)
class Runs:
    """What a trace says of the runs behind its warm-up; means are of one run."""

    count: int
    session_ms: float
    kernels_ms: float
    by_type: tuple[Operator, ...]
    by_node: tuple[Operator, ...]


@dataclass(frozen=True)
class Call:
    """Calls of one kernel together."""

    op_type: str
    node: str | None
    provider: str
    count: int
    us: float


def runs_of(events: Sequence[Event], warm_up: int) -> Runs:
    """Operators by time in ONNX Runtime's ``events``, without the first ``warm_up`` runs.

    Raises:
        NoRunsError: nothing is left.
    """
    runs = sorted((e for e in events if e["name"] == "model_run"), key=lambda e: e["ts"])[warm_up:]
    if not runs:
        raise NoRunsError
    begin = runs[0]["ts"]
    calls = [_call(e) for e in events if _is_kernel(e) and e["ts"] >= begin]
    return Runs(
        count=len(runs),
        session_ms=sum(e["dur"] for e in runs) / len(runs) / _US_PER_MS,
        kernels_ms=sum(call.us for call in calls) / len(runs) / _US_PER_MS,
        by_type=operators_of(calls, by=lambda call: (call.op_type, None, call.provider)),
        by_node=operators_of(calls, by=lambda call: (call.op_type, call.node, call.provider)),
    )


def _is_kernel(event: Event) -> bool:
    return event.get("cat") == "Node" and str(event["name"]).endswith(_KERNEL)


def _call(event: Event) -> Call:
    told = event["args"]
    node = str(event["name"]).removesuffix(_KERNEL)
    return Call(told["op_name"], node, told.get("provider", ""), 1, event["dur"])


def calls_of(kernels: Iterable[Kernel]) -> list[Call]:
    """PyTorch's operators that did something themselves."""
    return [Call(k.name, None, "CPU", k.calls, k.self_us) for k in kernels if k.self_us > 0]


_Key = tuple[str, str | None, str]


def operators_of(calls: Iterable[Call], by: Callable[[Call], _Key]) -> tuple[Operator, ...]:
    """``calls`` added up by type, node and provider, the longest first."""
    counts: dict[_Key, int] = {}
    times: dict[_Key, float] = {}
    for call in calls:
        key = by(call)
        counts[key] = counts.get(key, 0) + call.count
        times[key] = times.get(key, 0.0) + call.us
    whole = sum(times.values())
    return tuple(
        Operator(
            op_type=key[0],
            node=key[1],
            provider=key[2],
            calls=counts[key],
            total_ms=times[key] / _US_PER_MS,
            share=times[key] / whole if whole else 0.0,
        )
        for key in sorted(times, key=lambda key: -times[key])
    )
