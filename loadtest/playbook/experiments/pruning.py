"""A quarter of the channels removed, and nothing trained again."""

from __future__ import annotations

from loadtest.playbook.experiment import Advice, Experiment
from loadtest.playbook.needs import own_graph
from loadtest.playbook.precision import against_variant

EXPERIMENT = Experiment(
    name="pruning",
    title="Pruned channels",
    claim="Pruning a quarter of the channels makes a model 30% faster.",
    usual=(1.3, None),
    page="variants.md",
    arms=against_variant("pruned", "a quarter of the channels removed, not trained again"),
    missing=own_graph,
    may_lose=True,
    advice=Advice(variant="pruned"),
)
