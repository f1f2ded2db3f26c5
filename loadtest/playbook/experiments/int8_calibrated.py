"""INT8 with ranges from real inputs: weights and activations between QDQ nodes."""

from __future__ import annotations

from loadtest.playbook.experiment import Advice, Experiment
from loadtest.playbook.needs import own_graph
from loadtest.playbook.precision import against_variant

EXPERIMENT = Experiment(
    name="int8-calibrated",
    title="INT8, calibrated",
    claim="INT8 with calibrated ranges makes a model 2 to 4 times faster.",
    usual=(2.0, 4.0),
    page="variants.md",
    arms=against_variant("int8-static", "weights and activations in INT8, calibrated"),
    missing=own_graph,
    may_lose=True,
    advice=Advice(variant="int8-static"),
)
