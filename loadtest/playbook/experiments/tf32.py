"""TF32 on a GPU: float32 products with ten bits of mantissa."""

from __future__ import annotations

from typing import Any

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, gpu, pytorch
from loadtest.playbook.pytorch import device_calls, on_device


def _build(job: Job) -> Calls:
    allowed = job.arguments["allowed"]

    def call(torch: Any, module: Any, hosts: list[tuple[Any, ...]]) -> Any:
        torch.backends.cuda.matmul.allow_tf32 = allowed
        torch.backends.cudnn.allow_tf32 = allowed
        rows = on_device(hosts)
        return lambda number: module(*rows[number % len(rows)])

    return device_calls(job, call)


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called("float32", "PyTorch on the GPU, TF32 forbidden", _build, {"allowed": False}),
        Called("tf32", "PyTorch on the GPU, TF32 allowed", _build, {"allowed": True}),
    )


EXPERIMENT = Experiment(
    name="tf32",
    title="TF32 on a GPU",
    claim="Allowing TF32 makes float32 networks faster on a GPU.",
    usual=(1.5, 3.0),
    page="gpu.md",
    arms=_arms,
    missing=all_of(pytorch, gpu),
    on_gpu=True,
    may_lose=True,
)
