"""Inputs to try a model with: what ``model_warmup`` states, or made-up ones."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from serving.errors import ModelError
from serving.models.config import ModelConfig, TensorSpec
from serving.models.generated import Generated, random_values
from serving.models.scheduling import WarmUp, WarmUpInput
from serving.protocol import NUMPY_TYPES, Array, ProtocolError, from_binary

_SEED = 20_240_501
Arrays = dict[str, Array]


def warm_up_inputs(config: ModelConfig, folder: Path) -> Iterator[tuple[WarmUp, Arrays]]:
    """Every ``model_warmup`` with its inputs, ``rows`` of them when the model has a batch axis.

    Data files lie in ``warmup/`` of the model's ``folder``, as with Triton.

    Raises:
        ModelError: it does not fit the model, or a data file is missing or of another size.
    """
    rng = np.random.default_rng(_SEED)
    specs = {spec.name: spec for spec in config.inputs}
    for item in config.warm_ups:
        given = {one.name: one for one in item.inputs}
        if given.keys() != specs.keys():
            found = ", ".join(given) or "nothing"
            raise ModelError(
                f"model {config.name!r}: warm-up {item.name!r} gives {found}",
                hint=f"Give every input once: {', '.join(specs)}.",
            )
        arrays = {
            name: _warm_up_values(config, item, specs[name], one, folder, rng)
            for name, one in given.items()
        }
        yield item, arrays


def probe_rows(config: ModelConfig, count: int) -> list[Arrays] | None:
    """``count`` different samples, each one row where there is a batch axis, the same every time.

    ``None`` when a free axis has no length: neither ``sample_shape`` nor the first ``model_warmup``
    states one.
    """
    rng = np.random.default_rng(_SEED)
    lengths = {one.name: one.dims for item in config.warm_ups[:1] for one in item.inputs}
    shapes, ranges = {}, {}
    for spec in config.inputs:
        stated = config.generated.get(spec.name, Generated())
        dims = stated.dims or lengths.get(spec.name, spec.dims)
        shapes[spec.name] = (1, *dims) if config.batched else dims
        ranges[spec.name] = stated.values
    if any(-1 in shape for shape in shapes.values()):
        return None
    return [
        {
            spec.name: random_values(spec.datatype, shapes[spec.name], rng, ranges[spec.name])
            for spec in config.inputs
        }
        for _ in range(count)
    ]


def _warm_up_values(
    config: ModelConfig,
    item: WarmUp,
    spec: TensorSpec,
    given: WarmUpInput,
    folder: Path,
    rng: np.random.Generator,
) -> Array:
    label = f"model {config.name!r}: warm-up {item.name!r}, input {spec.name!r}"
    fits = len(given.dims) == len(spec.dims) and all(
        want in (-1, have) for want, have in zip(spec.dims, given.dims, strict=True)
    )
    if given.datatype != spec.datatype or not fits:
        raise ModelError(
            f"{label} is {given.datatype} {list(given.dims)}",
            hint=f"The model takes {spec.datatype} {list(spec.dims)}.",
        )
    shape = (item.rows, *given.dims) if config.batched else given.dims
    if given.source == "random":
        return random_values(spec.datatype, shape, rng, None)
    if given.source == "zero":
        if spec.datatype == "BYTES":
            empty = np.empty(shape, dtype=np.object_)
            empty.fill(b"")
            return empty
        return np.zeros(shape, NUMPY_TYPES[spec.datatype])
    path = folder / "warmup" / Path(given.source).name
    try:
        row = from_binary(path.read_bytes(), str(path), spec.datatype, given.dims)
    except (OSError, ProtocolError) as error:
        raise ModelError(
            f"{label}: {error}", hint=f"Put {math.prod(given.dims)} values into that file."
        ) from None
    rows = item.rows if config.batched else 1
    repeated: Array = np.concatenate([row] * rows).reshape(shape)
    return repeated
