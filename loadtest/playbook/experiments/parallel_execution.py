"""Operators of different branches at the same time, for one caller who has the whole machine.

The last arm gives the second CPU to the threads inside an operator instead. In the parallel arm a
thread that waits for another keeps its CPU busy, also where spinning is off. No advice follows, as
on a server the other CPUs answer other requests meanwhile.
"""

from __future__ import annotations

from dataclasses import replace

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import session_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, cpus, own_graph


def _build(job: Job) -> Calls:
    return session_calls(job, lambda execution: replace(execution, **job.arguments))


def _arms(_lab: Lab) -> tuple[Called, ...]:
    one_by_one = {"parallel": False, "inter_op_threads": 1, "intra_op_threads": 1}
    at_once = {"parallel": True, "inter_op_threads": 2, "intra_op_threads": 1}
    inside = {**one_by_one, "intra_op_threads": 2}
    arms = (
        ("sequential", "one operator after the other", one_by_one),
        ("parallel", "two operators at the same time", at_once),
        ("inside", "one operator after the other, two threads inside each", inside),
    )
    return tuple(
        Called(name, f"ONNX Runtime, {what}", _build, arguments, everywhere=True)
        for name, what, arguments in arms
    )


EXPERIMENT = Experiment(
    name="parallel-execution",
    title="Operators side by side",
    claim="Parallel execution makes a network with branches up to twice as fast.",
    usual=(1.2, 2.0),
    page="tuning-knobs.md",
    arms=_arms,
    missing=all_of(own_graph, cpus(2)),
)
