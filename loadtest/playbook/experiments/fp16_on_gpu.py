"""Half precision on a GPU, which has units for it, against float32 on the same GPU."""

from __future__ import annotations

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import on_cuda, session_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, gpu, own_graph


def _build(job: Job) -> Calls:
    return session_calls(job, on_cuda)


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called("fp32", "ONNX Runtime on CUDA, the model as it is", _build),
        Called(
            "fp16",
            "ONNX Runtime on CUDA, weights and computation in FP16",
            _build,
            model=lambda lab: lab.variant("fp16"),
        ),
    )


EXPERIMENT = Experiment(
    name="fp16-on-gpu",
    title="FP16 on a GPU",
    claim="FP16 is 2 to 5 times faster than FP32 on a GPU.",
    usual=(2.0, 5.0),
    page="gpu.md",
    arms=_arms,
    missing=all_of(own_graph, gpu),
    may_lose=True,
    starts=1,
    on_gpu=True,
)
