"""How long the dynamic batcher waits for company."""

from __future__ import annotations

from loadtest.playbook.experiment import Advice, Experiment, Lab
from loadtest.playbook.needs import batched
from loadtest.playbook.served import Served


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return tuple(
        Served(
            delay_us,
            f"our server, a batch waits up to {delay_us} µs",
            setting={"queue_delay_us": delay_us},
        )
        for delay_us in ("0", "1000", "100", "5000")
    )


EXPERIMENT = Experiment(
    name="batching-delay",
    title="Waiting for larger batches",
    claim="Let the batcher wait a little: batches get larger, and throughput rises.",
    usual=(1.1, 1.5),
    page="tuning-knobs.md",
    arms=_arms,
    missing=batched,
    advice=Advice(setting={"queue_delay_us": "1000"}),
)
