"""Tensors as JSON numbers, or as bytes behind a JSON header."""

from __future__ import annotations

from loadtest.playbook.experiment import Advice, Experiment, Lab
from loadtest.playbook.served import Served


def _missing(lab: Lab) -> str:
    front = (lab.model.front or lab.model).config.front
    refuses = front is not None and front.payload == "jpeg"
    return f"{lab.model.name} takes JPEG files, which JSON cannot carry" if refuses else ""


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return (
        Served(
            "json",
            "tensors as JSON numbers, prepared beforehand: only the server's work differs",
            load={"encoding": "json"},
        ),
        Served(
            "binary",
            "tensors as binary data (the protocol's extension), prepared beforehand",
            load={"encoding": "binary"},
        ),
    )


EXPERIMENT = Experiment(
    name="json-vs-binary",
    title="Binary tensors instead of JSON",
    claim="A server that gets tensors as binary data, not as JSON, answers several times as many.",
    usual=(2.0, 10.0),
    page="onnxruntime-server.md",
    arms=_arms,
    missing=_missing,
    advice=Advice(load={"encoding": "binary"}),
)
