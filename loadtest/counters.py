"""A server's counters of its own time, as it tells them. Pure: replies in, sums and counts out.

The statistics extension of the Open Inference Protocol gives exact ones
(https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_statistics.md).
Metrics give them too: those of the names in ``serving.metrics.table``, and Triton's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import orjson

from loadtest.explained import PhaseTotal, ServerTimings

STATISTICS = "the statistics extension"
METRICS = "Prometheus metrics"
FRONT_HALF = "front_half"
"""The phase in which the front half of a pipeline works."""
_WORK = ("compute_input", "compute", "compute_output")

_PHASES = {
    "success": "total",
    "queue": "queue",
    "compute_input": "compute_input",
    "compute_infer": "compute",
    "compute_output": "compute_output",
}
_OURS = {
    "total": "infersweep_request_seconds",
    "queue": "infersweep_queue_seconds",
    "compute": "infersweep_compute_seconds",
}
_OUR_BATCHES = "infersweep_batch_rows"
_TRITONS = {
    "total": "nv_inference_request_duration_us_total",
    "queue": "nv_inference_queue_duration_us_total",
    "compute_input": "nv_inference_compute_input_duration_us_total",
    "compute": "nv_inference_compute_infer_duration_us_total",
    "compute_output": "nv_inference_compute_output_duration_us_total",
}


class UntoldError(Exception):
    """The server does not tell; the text says why."""


@dataclass(frozen=True)
class Counters:
    """All that a server has counted so far; ``phases`` are count and ns by name."""

    told_by: str
    phases: Mapping[str, tuple[int, int]]
    rows: int
    executions: int

    def with_steps(self, front: Counters, model: Counters) -> Counters:
        """Those of a pipeline, from its own and those of its front half and its model.

        What the front half took is a phase of its own; waiting for it is waiting like any other.
        To hand its tensor over is in no phase: Triton counts that on while the model computes.
        """
        count = self.phases["total"][0]
        queue_ns = sum(one.phases["queue"][1] for one in (self, front, model))
        work = [front.phases[name] for name in _WORK[:-1] if name in front.phases]
        own = {name: model.phases[name] for name in _WORK if name in model.phases}
        return Counters(
            self.told_by,
            {
                "total": self.phases["total"],
                "queue": (count, queue_ns),
                FRONT_HALF: (work[0][0], sum(ns for _, ns in work)),
                **own,
            },
            model.rows,
            model.executions,
        )

    def until(self, later: Counters) -> ServerTimings:
        """What was counted in between.

        Raises:
            UntoldError: nothing was, or the server was started again.
        """
        phases = {
            name: PhaseTotal(count=count - self.phases[name][0], ns=ns - self.phases[name][1])
            for name, (count, ns) in later.phases.items()
        }
        if any(total.count < 0 or total.ns < 0 for total in phases.values()):
            raise UntoldError("its counters went back, so it was started again")
        if not phases["total"].count:
            raise UntoldError("it counted no request in the window")
        return ServerTimings(
            told_by=self.told_by,
            phases=phases,
            rows=later.rows - self.rows,
            executions=later.executions - self.executions,
        )


def read_statistics(body: bytes) -> Counters:
    """From a reply of the statistics extension, all versions together.

    Raises:
        UntoldError: it is none.
    """
    counts: Counter[str] = Counter()
    ns: Counter[str] = Counter()
    rows = executions = 0
    try:
        for version in orjson.loads(body)["model_stats"]:
            rows += int(version.get("inference_count", 0))
            executions += int(version.get("execution_count", 0))
            for theirs, ours in _PHASES.items():
                # Protocol buffers' JSON leaves out what is 0.
                found = version["inference_stats"].get(theirs, {})
                counts[ours] += int(found.get("count", 0))
                ns[ours] += int(found.get("ns", 0))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UntoldError(f"its statistics are not those of the protocol ({error!r})") from None
    return Counters(
        STATISTICS, {name: (counts[name], ns[name]) for name in counts}, rows, executions
    )


def read_metrics(texts: Iterable[str], model: str) -> Counters:
    """From Prometheus's text format, all replicas and all versions of ``model`` together.

    Raises:
        UntoldError: the metrics are not there.
    """
    # Imported here, since most servers need no more than JSON.
    from prometheus_client.parser import text_string_to_metric_families  # noqa: PLC0415

    found: defaultdict[str, float] = defaultdict(float)
    try:
        for text in texts:
            for family in text_string_to_metric_families(text):
                for name, labels, value, *_ in family.samples:
                    if labels.get("model") == model and not name.endswith("_bucket"):
                        found[name] += value
        return _tritons(dict(found)) if _TRITONS["total"] in found else _ours(dict(found))
    except ValueError as error:
        raise UntoldError(f"its metrics cannot be read ({error})") from None
    except KeyError as error:
        raise UntoldError(f"its metrics have no {error.args[0]} of model {model!r}") from None


def _ours(found: Mapping[str, float]) -> Counters:
    """Raises KeyError when one is missing."""
    phases = {
        phase: (int(found[f"{name}_count"]), round(found[f"{name}_sum"] * 1e9))
        for phase, name in _OURS.items()
    }
    rows, executions = found[f"{_OUR_BATCHES}_sum"], found[f"{_OUR_BATCHES}_count"]
    return Counters(METRICS, phases, int(rows), int(executions))


def _tritons(found: Mapping[str, float]) -> Counters:
    """Raises KeyError when one is missing."""
    count = int(found["nv_inference_request_success_total"])
    phases = {phase: (count, round(found[name] * 1e3)) for phase, name in _TRITONS.items()}
    rows, executions = found["nv_inference_count_total"], found["nv_inference_exec_count_total"]
    return Counters(METRICS, phases, int(rows), int(executions))
