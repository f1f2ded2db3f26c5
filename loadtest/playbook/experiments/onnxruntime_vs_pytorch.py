"""ONNX Runtime against PyTorch eager, in one process each, with equal threads."""

from __future__ import annotations

from loadtest.playbook.called import Called
from loadtest.playbook.engines import session_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import pytorch
from loadtest.playbook.pytorch import network_calls


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called("pytorch", "PyTorch eager in inference mode", network_calls),
        Called("onnxruntime", "ONNX Runtime, all graph optimisations", session_calls),
    )


EXPERIMENT = Experiment(
    name="onnxruntime-vs-pytorch",
    title="ONNX Runtime instead of PyTorch",
    claim="ONNX Runtime is 2 to 3 times as fast as PyTorch eager.",
    usual=(2.0, 3.0),
    page="backends.md",
    arms=_arms,
    missing=pytorch,
)
