"""Inputs in system shared memory, or in the body."""

from __future__ import annotations

from loadtest.playbook.experiment import Advice, Experiment, Lab
from loadtest.playbook.served import Served


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return (
        Served("body", "inputs in the body, as binary data"),
        Served(
            "shared memory",
            "inputs lie in system shared memory already, outputs come back in the body",
            load={"shared_memory": True},
        ),
    )


EXPERIMENT = Experiment(
    name="shared-memory",
    title="Inputs in shared memory",
    claim="A client on the same machine gains by handing its inputs over in shared memory.",
    usual=(1.5, 3.0),
    page="onnxruntime-server.md",
    arms=_arms,
    advice=Advice(load={"encoding": "binary", "shared_memory": True}),
)
