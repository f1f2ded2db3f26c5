"""Threads inside an operator, for one caller who has the whole machine.

No advice follows: on a server the other CPUs answer other requests meanwhile, each with one thread.
"""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import session_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, cpus, own_graph
from serving.models.execution import Execution

_SPINNING = "session.intra_op.allow_spinning"


def _build(job: Job) -> Calls:
    def change(execution: Execution) -> Execution:
        entries = dict(execution.session_entries)
        if job.arguments["spinning"]:
            entries[_SPINNING] = "1"
        return replace(
            execution,
            intra_op_threads=job.arguments["threads"],
            session_entries=MappingProxyType(entries),
        )

    return session_calls(job, change)


def _arms(lab: Lab) -> tuple[Called, ...]:
    count = len(lab.all_cpus)
    arms = (
        ("one", 1, False, "one thread"),
        ("all", count, False, f"{count} threads, one for each CPU"),
        ("one-more", count + 1, False, f"{count + 1} threads, one more than CPUs"),
        ("spinning", count, True, f"{count} threads that spin while they wait"),
    )
    return tuple(
        Called(
            name,
            f"ONNX Runtime, {what}",
            _build,
            {"threads": threads, "spinning": spinning},
            everywhere=True,
        )
        for name, threads, spinning, what in arms
    )


EXPERIMENT = Experiment(
    name="intra-op-threads",
    title="Threads inside an operator",
    claim="On n CPUs, n threads make one inference n times faster.",
    usual=(1.5, None),
    page="tuning-knobs.md",
    arms=_arms,
    missing=all_of(own_graph, cpus(2)),
)
