"""Triton's backends for ONNX models: the native one, and one in Python."""

from __future__ import annotations

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import native_triton
from loadtest.playbook.own import launched
from loadtest.playbook.served import Served
from serving.backends.triton import from_wheel


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return (
        Served(
            "python",
            "Triton from the wheel, ONNX Runtime in its Python backend",
            own=launched("triton", from_wheel),
        ),
        Served("native", "the installed Triton, native ONNX Runtime backend", backend="triton"),
    )


EXPERIMENT = Experiment(
    name="triton-native",
    title="Triton's native backend",
    claim="Triton's native ONNX Runtime backend serves more than a backend in Python.",
    usual=(1.2, 3.0),
    page="backends.md",
    arms=_arms,
    missing=native_triton,
)
