"""Half precision on the CPU, where few processors and fewer runtimes have kernels for it."""

from __future__ import annotations

from loadtest.playbook.experiment import Advice, Experiment
from loadtest.playbook.needs import own_graph
from loadtest.playbook.precision import against_variant

EXPERIMENT = Experiment(
    name="fp16",
    title="FP16 on the CPU",
    claim="FP16 is 2 to 5 times faster than FP32.",
    usual=(2.0, 5.0),
    page="variants.md",
    arms=against_variant("fp16", "weights and computation in FP16"),
    missing=own_graph,
    may_lose=True,
    advice=Advice(variant="fp16"),
)
