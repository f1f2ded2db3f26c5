"""Inputs copied to the GPU from pageable against pinned memory of the host."""

from __future__ import annotations

from typing import Any

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, gpu, pytorch
from loadtest.playbook.pytorch import device_calls


def _build(job: Job) -> Calls:
    pinned = job.arguments["pinned"]

    def call(_torch: Any, module: Any, hosts: list[tuple[Any, ...]]) -> Any:
        rows = [tuple(part.pin_memory() if pinned else part for part in host) for host in hosts]
        return lambda number: module(
            *(part.to("cuda", non_blocking=pinned) for part in rows[number % len(rows)])
        )

    return device_calls(job, call)


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called("pageable", "copied from pageable memory", _build, {"pinned": False}),
        Called("pinned", "copied from pinned memory, not waited for", _build, {"pinned": True}),
    )


EXPERIMENT = Experiment(
    name="pinned-memory",
    title="Pinned memory",
    claim="Copies to a GPU are faster from pinned memory.",
    usual=(1.1, 2.0),
    page="gpu.md",
    arms=_arms,
    missing=all_of(pytorch, gpu),
    on_gpu=True,
)
