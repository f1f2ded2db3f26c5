"""Triton and our own server, each as it comes."""

from __future__ import annotations

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.served import Served


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return (
        Served("triton", "Triton, from wherever this machine has it", backend="triton"),
        Served("ours", "our ONNX Runtime server", backend="onnxruntime"),
    )


EXPERIMENT = Experiment(
    name="triton-vs-ours",
    title="A small server in place of Triton",
    claim="A small server made for ONNX Runtime does more on a CPU than Triton.",
    usual=(1.1, 2.0),
    page="backends.md",
    arms=_arms,
)
