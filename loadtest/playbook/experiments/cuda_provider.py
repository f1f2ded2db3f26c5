"""The GPU through CUDA against all CPUs of the machine, eight rows at a time where it takes them.

Float32 convolutions run as TF32 on a GPU, which keeps 10 bits, so answers may differ a little; the
last arm does without.
"""

from __future__ import annotations

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import on_cpu, on_cuda, session_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, gpu, own_graph
from serving.models.execution import Execution

_MOST_ROWS = 8


def _without_tf32(execution: Execution) -> Execution:
    return on_cuda(execution, use_tf32="0")


_CHANGES = {"cpu": on_cpu, "cuda": on_cuda, "no-tf32": _without_tf32}


def _build(job: Job) -> Calls:
    return session_calls(job, _CHANGES[job.arguments["on"]], job.arguments["rows"])


def _arms(lab: Lab) -> tuple[Called, ...]:
    rows = max(1, min(_MOST_ROWS, lab.config.max_batch_size))
    told = {
        "cpu": "all CPUs, one thread on each",
        "cuda": "CUDA",
        "no-tf32": "CUDA in full float32",
    }
    return tuple(
        Called(
            name,
            f"ONNX Runtime on {what}, {rows} rows at a time",
            _build,
            {"on": name, "rows": rows},
            everywhere=True,
        )
        for name, what in told.items()
    )


EXPERIMENT = Experiment(
    name="cuda-provider",
    title="CUDA against the CPU",
    claim="A GPU is 10 to 30 times as fast as a CPU.",
    usual=(10.0, 30.0),
    page="gpu.md",
    arms=_arms,
    missing=all_of(own_graph, gpu),
    may_lose=True,
    starts=1,
    on_gpu=True,
)
