"""Graph optimisation levels of ONNX Runtime."""

from __future__ import annotations

from dataclasses import replace

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import session_calls
from loadtest.playbook.experiment import Experiment, Lab

_LEVELS = {
    "off": "ORT_DISABLE_ALL",
    "all": "ORT_ENABLE_ALL",
    "basic": "ORT_ENABLE_BASIC",
    "extended": "ORT_ENABLE_EXTENDED",
}


def _build(job: Job) -> Calls:
    level = _LEVELS[job.arguments["level"]]
    return session_calls(job, lambda execution: replace(execution, graph_level=level))


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return tuple(
        Called(name, f"ONNX Runtime, graph level {level}", _build, {"level": name})
        for name, level in _LEVELS.items()
    )


EXPERIMENT = Experiment(
    name="graph-optimisation",
    title="Graph optimisation of ONNX Runtime",
    claim="Optimising the graph (constants folded, operators fused) makes inference faster.",
    usual=(1.1, 2.0),
    page="tuning-knobs.md",
    arms=_arms,
)
