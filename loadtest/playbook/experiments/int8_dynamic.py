"""INT8 without calibration: ranges of activations are taken while the model runs."""

from __future__ import annotations

from loadtest.playbook.experiment import Advice, Experiment
from loadtest.playbook.needs import own_graph
from loadtest.playbook.precision import against_variant

EXPERIMENT = Experiment(
    name="int8-dynamic",
    title="INT8, ranges taken while it runs",
    claim="Dynamic quantisation to INT8 makes a model 2 to 4 times faster, without calibration.",
    usual=(2.0, 4.0),
    page="variants.md",
    arms=against_variant("int8-dynamic", "weights in INT8, ranges taken while it runs"),
    missing=own_graph,
    may_lose=True,
    advice=Advice(variant="int8-dynamic"),
)
