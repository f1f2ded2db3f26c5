"""Mixed precision on a GPU: autocast to float16."""

from __future__ import annotations

from typing import Any

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, gpu, pytorch
from loadtest.playbook.pytorch import device_calls, on_device


def _build(job: Job) -> Calls:
    def call(torch: Any, module: Any, hosts: list[tuple[Any, ...]]) -> Any:
        rows = on_device(hosts)

        def run(number: int) -> Any:
            with torch.autocast("cuda", torch.float16, enabled=job.arguments["mixed"]):
                return module(*rows[number % len(rows)])

        return run

    return device_calls(job, call)


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called("float32", "PyTorch on the GPU in float32", _build, {"mixed": False}),
        Called("mixed", "PyTorch on the GPU, autocast to float16", _build, {"mixed": True}),
    )


EXPERIMENT = Experiment(
    name="mixed-precision",
    title="Mixed precision on a GPU",
    claim="Autocast to float16 makes a GPU answer faster.",
    usual=(1.5, 3.0),
    page="gpu.md",
    arms=_arms,
    missing=all_of(pytorch, gpu),
    on_gpu=True,
    may_lose=True,
)
