"""Real inputs for a model: the zoo entry's own, or generated ones that no model chokes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serving.errors import ModelError
from serving.models.config import ModelConfig, TensorSpec
from serving.models.probes import random_values
from serving.models.repository import Model
from serving.models.zoo import ENTRIES
from serving.protocol import Array


@dataclass(frozen=True)
class Sample:
    """One row for every input.

    Attributes:
        name: what it shows, such as ``cat``.
        inputs: input name to an array with the batch axis, of length 1, when the model has one.
    """

    name: str
    inputs: Mapping[str, Array]


GENERATED_COUNT = 8
_SEED = 20_240_501


def samples_for(model: Model) -> tuple[Sample, ...]:
    """Sample rows for ``model``.

    Raises:
        ModelError: an axis has no fixed length and the model has no zoo entry to choose one.
    """
    entry = ENTRIES.get(model.name)
    if entry is not None:
        return tuple(Sample(name, inputs) for name, inputs in entry.samples().items())
    rng = np.random.default_rng(_SEED)
    return tuple(
        Sample(f"generated {index}", _generate(model.config, rng))
        for index in range(GENERATED_COUNT)
    )


def stack_rows(samples: Sequence[Sample]) -> dict[str, Array]:
    """The rows of ``samples`` joined along the batch axis; all must have the same shapes."""
    names = samples[0].inputs
    return {name: np.concatenate([sample.inputs[name] for sample in samples]) for name in names}


def _generate(config: ModelConfig, rng: np.random.Generator) -> dict[str, Array]:
    return {spec.name: _values(config, spec, rng) for spec in config.inputs}


def _values(config: ModelConfig, spec: TensorSpec, rng: np.random.Generator) -> Array:
    if -1 in spec.dims:
        raise ModelError(
            f"model {config.name!r}: input {spec.name!r} has an axis of no fixed length",
            hint="Only models of the zoo choose such a length themselves.",
        )
    return random_values(spec, (1, *spec.dims) if config.batched else spec.dims, rng)
