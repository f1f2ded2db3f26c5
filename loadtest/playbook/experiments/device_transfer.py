"""Inputs copied to the GPU at each call, against inputs that are there."""

from __future__ import annotations

from typing import Any

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, gpu, pytorch
from loadtest.playbook.pytorch import device_calls, on_device


def _build(job: Job) -> Calls:
    def call(_torch: Any, module: Any, hosts: list[tuple[Any, ...]]) -> Any:
        if not job.arguments["there"]:
            return lambda number: module(*(part.to("cuda") for part in hosts[number % len(hosts)]))
        rows = on_device(hosts)
        return lambda number: module(*rows[number % len(rows)])

    return device_calls(job, call)


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called("copied", "inputs copied from the host at each call", _build, {"there": False}),
        Called("there", "inputs that lie on the GPU", _build, {"there": True}),
    )


EXPERIMENT = Experiment(
    name="device-transfer",
    title="Inputs that stay on the GPU",
    claim="Keeping tensors on the device makes a GPU answer faster.",
    usual=(1.2, 3.0),
    page="gpu.md",
    arms=_arms,
    missing=all_of(pytorch, gpu),
    on_gpu=True,
)
