"""TensorRT against CUDA on the same GPU, one row at a time; the last arm in half precision.

An engine is built at the start of an arm unless it was built before; that is not in the ratio.
"""

from __future__ import annotations

from functools import partial

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import on_cuda, on_tensorrt, session_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, own_graph, tensorrt


def _build(job: Job) -> Calls:
    precision = job.arguments["precision"]
    change = partial(on_tensorrt, precision=precision) if precision else on_cuda
    return session_calls(job, change)


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called("cuda", "ONNX Runtime on CUDA", _build, {"precision": ""}),
        Called("fp32", "ONNX Runtime on TensorRT, FP32", _build, {"precision": "FP32"}),
        Called("fp16", "ONNX Runtime on TensorRT, FP16", _build, {"precision": "FP16"}),
    )


EXPERIMENT = Experiment(
    name="tensorrt-provider",
    title="TensorRT against CUDA",
    claim="TensorRT is 2 to 5 times as fast as CUDA.",
    usual=(2.0, 5.0),
    page="gpu.md",
    arms=_arms,
    missing=all_of(own_graph, tensorrt),
    may_lose=True,
    starts=1,
    on_gpu=True,
)
