"""JAX with and without jit, of the same network."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import calls_of, session_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.jaxed import function_of, graph_of
from loadtest.playbook.needs import package
from serving.protocol import Array


def _build(job: Job) -> Calls:
    import jax  # noqa: PLC0415  (an extra)

    config = job.model.config
    function = function_of(graph_of(job.model), jax)
    if job.arguments["jit"]:
        function = jax.jit(function)

    def run(row: Mapping[str, Array]) -> Mapping[str, Array]:
        given = [jax.numpy.asarray(row[spec.name]) for spec in config.inputs]
        answer = jax.block_until_ready(function(*given))
        names = [spec.name for spec in config.outputs]
        return {name: np.asarray(part) for name, part in zip(names, answer, strict=True)}

    facts = {"JAX": jax.__version__, "device": str(jax.devices()[0])}
    return calls_of(run, job.model, facts=facts)


def _arms(lab: Lab) -> tuple[Called, ...]:
    """Raises ModelError where the graph has no translation."""
    graph_of(lab.model)
    # XLA takes one thread for each CPU that the process may use.
    variables = {"JAX_PLATFORMS": "cpu"}
    return (
        Called("jax", "JAX, operator by operator", _build, {"jit": False}, variables=variables),
        Called("jit", "JAX through jit", _build, {"jit": True}, variables=variables),
        Called("onnxruntime", "ONNX Runtime, for comparison", session_calls),
    )


EXPERIMENT = Experiment(
    name="jax-jit",
    title="jit of JAX",
    claim="A network that went through JAX's jit answers faster than one that did not.",
    usual=(2.0, 10.0),
    page="models.md",
    arms=_arms,
    missing=package("jax", "jax"),
)
