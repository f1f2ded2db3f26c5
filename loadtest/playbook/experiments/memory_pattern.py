"""One block of memory for all tensors of a shape seen before.

No advice follows: it is on unless a configuration turns it off.
"""

from __future__ import annotations

from dataclasses import replace

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import session_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import own_graph


def _build(job: Job) -> Calls:
    planned = job.arguments["planned"]
    return session_calls(job, lambda execution: replace(execution, memory_pattern=planned))


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called("off", "ONNX Runtime, memory for each tensor alone", _build, {"planned": False}),
        Called("on", "ONNX Runtime, memory planned for all tensors", _build, {"planned": True}),
    )


EXPERIMENT = Experiment(
    name="memory-pattern",
    title="Memory patterns of ONNX Runtime",
    claim="Planning the memory of all tensors in one block makes inference faster.",
    usual=(1.05, 1.3),
    page="tuning-knobs.md",
    arms=_arms,
    missing=own_graph,
)
