"""Instances of a model in our server."""

from __future__ import annotations

from loadtest.playbook.experiment import Advice, Experiment, Lab
from loadtest.playbook.served import Served


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return tuple(
        Served(str(count), f"our server, instances: {count}", setting={"instances": str(count)})
        for count in (1, 2)
    )


EXPERIMENT = Experiment(
    name="instances",
    title="Two instances",
    claim="Two instances of a model give twice the throughput.",
    usual=(1.8, 2.0),
    page="tuning-knobs.md",
    arms=_arms,
    advice=Advice(setting={"instances": "2"}),
)
