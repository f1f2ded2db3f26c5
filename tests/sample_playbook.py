"""Made-up playbooks: values of each window are given, everything else is judged from them."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from loadtest.playbook.judging import (
    UNITS,
    effect_of,
    sentence_of,
    value_of,
    verdict_of,
)
from loadtest.playbook.record import (
    Answers,
    ArmRecord,
    Combination,
    ExperimentRecord,
    MeasureName,
    Part,
    Playbook,
    WindowRecord,
)
from loadtest.results import Machine

MB = 10**6
SPREAD = (0.99, 1.0, 1.01)
"""Of three starts, around a value that is given."""

RIGHT = Answers(right=True, inputs=16, largest_difference=1e-6, lost=0.0, lost_measure="top-1")
WRONG = Answers(
    right=False,
    inputs=16,
    largest_difference=0.8,
    lost=0.25,
    lost_measure="top-1",
    detail="4 of 16 answers differ by up to 0.8, more than 1e-4",
)
STALLED = "the generator itself stalled for 80 ms"


def window(start: int, value: float, measure: MeasureName, **changes: Any) -> WindowRecord:
    """``value`` is what ``measure`` reads; the rest follows from a rate of ten in flight."""
    ms = 10_000 / value if measure == "throughput" else value
    found = {
        "start": start,
        "repeat": 1,
        "count": 500,
        "inferences_per_s": 10_000 / ms,
        "p50_ms": ms,
        "p99_ms": ms if measure == "p99" else None,
        "slowest_ms": ms if measure == "slowest" else 3 * ms,
        **changes,
    }
    made = WindowRecord.model_validate(found)
    assert abs((value_of(made, measure) or 0) / value - 1) < 1e-9
    return made


def arm(name: str, value: float, measure: MeasureName = "throughput", **changes: Any) -> ArmRecord:
    """Three starts around ``value``."""
    found = {
        "name": name,
        "what": f"what {name} is, in words",
        "windows": tuple(
            window(start, value * factor, measure) for start, factor in enumerate(SPREAD, 1)
        ),
        "start_s": (1.0, 1.2, 1.1),
        "rss_bytes": 200 * MB,
        "answers": RIGHT,
        "facts": {"provider": "CPU"},
        **changes,
    }
    return ArmRecord.model_validate(found)


def experiment(
    name: str,
    arms: Sequence[ArmRecord],
    usual: tuple[float, float | None] = (1.5, 3.0),
    measure: MeasureName = "throughput",
    **changes: Any,
) -> ExperimentRecord:
    """Judged as a measured one is; ``missing`` among the changes says why it is none."""
    effects = [effect_of(arms[0], one, measure) for one in arms[1:]]
    effect, answers = (effects[0], arms[1].answers) if effects else (None, None)
    missing = changes.get("missing", "")
    verdict = "cannot be measured here" if missing else verdict_of(effect, answers, usual)
    found = {
        "name": name,
        "title": f"Title of {name}",
        "claim": f"With {name} it is faster.",
        "usual": usual,
        "page": f"playbook.md#{name}",
        "measure": measure,
        "unit": UNITS[measure],
        "model": "tiny",
        "started": "2026-05-01T12:00:00+00:00",
        "took_s": 21.5,
        "starts": 3,
        "baseline": arms[0].name if arms else "",
        "judged": arms[1].name if effects else "",
        "arms": tuple(arms),
        "effects": tuple(effects),
        "verdict": verdict,
        "sentence": sentence_of(verdict, effect, answers, usual, [missing] if missing else ()),
        **changes,
    }
    return ExperimentRecord.model_validate(found)


def holds(name: str = "fp16") -> ExperimentRecord:
    """With a third arm that is only shown."""
    smaller = {"rss_bytes": 120 * MB, "start_s": (0.6, 0.7, 0.5)}
    third = arm("both", 250.0)
    return experiment(name, [arm("plain", 100.0), arm(name, 200.0, **smaller), third])


def in_part() -> ExperimentRecord:
    return experiment("threads", [arm("two", 100.0), arm("one", 120.0)])


def no_difference() -> ExperimentRecord:
    """Of a time; one window of a start of its own does not count."""
    changed = arm("other", 10.0, "p50")
    void = window(4, 30.0, "p50", reasons=(STALLED,))
    changed = changed.model_copy(update={"windows": (*changed.windows, void)})
    return experiment("allocator", [arm("own", 10.0, "p50"), changed], measure="p50")


def opposite() -> ExperimentRecord:
    bigger = {"rss_bytes": 900 * MB, "start_s": (4.0, 4.1, 4.2)}
    return experiment("workers", [arm("one", 100.0), arm("many", 40.0, **bigger)], (1.5, None))


def breaking() -> ExperimentRecord:
    return experiment("int8", [arm("fp32", 100.0), arm("int8", 300.0, answers=WRONG)])


def failed() -> ExperimentRecord:
    arms = [ArmRecord(name="json", what="JSON"), ArmRecord(name="binary", what="binary tensors")]
    return experiment("encoding", arms, missing="the server ended with code 1", failed=True)


def missing() -> ExperimentRecord:
    return experiment("tensorrt", [], (3.0, 5.0), missing="no NVIDIA GPU: no driver")


def combination(measured: float = 210.0, **changes: Any) -> Combination:
    """Two and 1.2 times predict 2.4; the default is at 100."""
    helped = [holds(), in_part()]
    parts = [
        Part(
            experiment=one.name,
            what=f"{one.judged} in words",
            ratio=e.ratio,
            low=e.low,
            high=e.high,
        )
        for one in helped
        if (e := one.effect) and e.ratio and e.low and e.high
    ]
    predicted = prod(part.ratio for part in parts)
    test = experiment(
        "combination", [arm("default", 100.0), arm("combined", measured)], (predicted, predicted)
    )
    found = {
        "default": "what many begin with",
        "combined": "onnxruntime, fp16, one thread",
        "parts": tuple(parts),
        "left_out": {"workers": "opposite"},
        "predicted": predicted,
        "experiment": test,
        **changes,
    }
    return Combination.model_validate(found)


def playbook(**changes: Any) -> Playbook:
    """One of each verdict, one that failed, the largest effect first."""
    found = {
        "model": "tiny",
        "model_sha256": "0" * 64,
        "machine": Machine(
            hostname="host",
            os="Linux",
            python="3.11",
            cpu_model="A processor",
            usable_cpus=2,
            cpu_source="affinity",
            memory_bytes=8 * 10**9,
        ),
        "versions": {"onnxruntime": "1.31"},
        "commit": None,
        "started": "2026-05-01T12:00:00+00:00",
        "server_cpus": (0,),
        "client_cpus": (1,),
        "pace": "3 starts of each arm, one window of 1.5 s each, arms in turns",
        "command": "infersweep playbook --model tiny --quick",
        "complete": True,
        "experiments": (
            *(breaking(), opposite(), holds(), in_part(), no_difference()),
            *(failed(), missing()),
        ),
        "combination": combination(),
        **changes,
    }
    return Playbook.model_validate(found)
