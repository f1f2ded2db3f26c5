"""Inputs for a model: those stored beside it, the zoo entry's own, or made-up ones.

A variant's are its parent's. A front half and its pipeline are shown photographs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from serving.errors import ModelError
from serving.fronthalf import FrontHalf
from serving.fronthalf.frames import frames_for
from serving.models.generated import SHAPE_PREFIX
from serving.models.probes import probe_rows
from serving.models.repository import Model
from serving.models.stored_samples import FOLDER, read_stored
from serving.models.variants.parameters import read_record
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


def samples_for(model: Model) -> tuple[Sample, ...]:
    """Sample rows for ``model``.

    Raises:
        ModelError: a stored sample does not fit; or there is none, and an axis has no length.
    """
    model = _origin(model)
    stored = _stored(model)
    if stored:
        return stored
    front = _front_half(model)
    if front is not None:
        name = model.config.inputs[0].name
        return tuple(Sample(shown, {name: row}) for shown, row in frames_for(front).items())
    entry = ENTRIES.get(model.name)
    if entry is not None:
        return tuple(Sample(name, inputs) for name, inputs in entry.samples().items())
    rows = probe_rows(model.config, GENERATED_COUNT)
    if rows is None:
        free = next(spec for spec in model.config.inputs if -1 in spec.dims)
        raise ModelError(
            f"model {model.name!r}: input {free.name!r} has an axis of no fixed length",
            hint=f"Put inputs into {model.folder / FOLDER}, or state the parameter "
            f"{SHAPE_PREFIX}{free.name} in its config.pbtxt.",
        )
    return tuple(Sample(f"generated {index}", row) for index, row in enumerate(rows))


def source_of_samples(model: Model) -> Literal["stored", "zoo", "generated"]:
    """Where ``samples_for`` takes them from."""
    origin = _origin(model)
    if _stored(origin):
        return "stored"
    return "zoo" if origin.name in ENTRIES or _front_half(origin) else "generated"


def _front_half(model: Model) -> FrontHalf | None:
    """What makes tensors of its pictures, if it takes pictures."""
    if not model.folder.is_dir():
        return None
    return model.front.config.front if model.front else model.config.front


def _origin(model: Model) -> Model:
    """The model itself, or the one that it is a variant of."""
    record = read_record(model.config)
    return model if record is None else Model(model.root, record.of)


def _stored(model: Model) -> tuple[Sample, ...]:
    # A model of the zoo is known by its name, wherever its variant lies.
    if model.name in ENTRIES and not model.folder.is_dir():
        return ()
    return tuple(Sample(name, arrays) for name, arrays in read_stored(model.folder, model.config))


def stack_rows(samples: Sequence[Sample]) -> dict[str, Array]:
    """The rows of ``samples`` joined along the batch axis; all must have the same shapes."""
    names = samples[0].inputs
    return {name: np.concatenate([sample.inputs[name] for sample in samples]) for name in names}
