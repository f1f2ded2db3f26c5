"""Does a request fit the model? Every mismatch is the client's fault and is told in full."""

from __future__ import annotations

from collections.abc import Sequence

from serving.models.config import ModelConfig, TensorSpec
from serving.protocol import Array, ProtocolError, Tensor


def validate_inputs(config: ModelConfig, tensors: Sequence[Tensor]) -> dict[str, Array]:
    """Input name to array, complete and of equal batch size.

    Raises:
        ProtocolError: names, datatypes, shapes or batch sizes do not fit; says what was expected
            and what came.
    """
    specs = {spec.name: spec for spec in config.inputs}
    arrays: dict[str, Array] = {}
    for tensor in tensors:
        if tensor.name not in specs:
            raise ProtocolError(
                f"unexpected input {tensor.name!r}; model {config.name!r} has {', '.join(specs)}"
            )
        if tensor.name in arrays:
            raise ProtocolError(f"input {tensor.name!r} came twice")
        _check(config, specs[tensor.name], tensor)
        arrays[tensor.name] = tensor.array
    missing = [name for name in specs if name not in arrays]
    if missing:
        raise ProtocolError(f"missing inputs of model {config.name!r}: {', '.join(missing)}")
    if config.batched:
        _check_rows(config, arrays)
    return arrays


def _check(config: ModelConfig, spec: TensorSpec, tensor: Tensor) -> None:
    if tensor.datatype != spec.datatype:
        raise ProtocolError(
            f"input {spec.name!r}: expected datatype {spec.datatype}, got {tensor.datatype}"
        )
    expected, got = config.wire_dims(spec), tensor.array.shape
    fits = len(expected) == len(got) and all(
        want in (-1, have) for want, have in zip(expected, got, strict=True)
    )
    if not fits:
        raise ProtocolError(
            f"input {spec.name!r}: expected shape {list(expected)}, got {list(got)}"
        )


def _check_rows(config: ModelConfig, arrays: dict[str, Array]) -> None:
    rows = {name: array.shape[0] for name, array in arrays.items()}
    if len(set(rows.values())) != 1:
        raise ProtocolError(f"inputs have different batch sizes: {rows}")
    count = next(iter(rows.values()))
    if not 1 <= count <= config.max_batch_size:
        raise ProtocolError(
            f"batch size {count} is outside 1..{config.max_batch_size} of model {config.name!r}"
        )
