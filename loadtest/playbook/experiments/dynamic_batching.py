"""Dynamic batching on our server, with 8 clients."""

from __future__ import annotations

from loadtest.playbook.experiment import Advice, Experiment, Lab
from loadtest.playbook.needs import batched
from loadtest.playbook.served import Served


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return (
        Served("off", "no dynamic batcher", setting={"queue_delay_us": "off"}),
        Served("on", "dynamic batching, no waiting", setting={"queue_delay_us": "0"}),
    )


EXPERIMENT = Experiment(
    name="dynamic-batching",
    title="Dynamic batching",
    claim="Joining requests that wait into batches raises throughput.",
    usual=(1.5, 4.0),
    page="tuning-knobs.md",
    arms=_arms,
    missing=batched,
    advice=Advice(setting={"queue_delay_us": "0"}),
)
