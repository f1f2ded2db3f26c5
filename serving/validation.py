"""Does a request fit the model? Every mismatch is the client's fault and is told in full."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from serving.models.config import ModelConfig, TensorSpec
from serving.protocol import Array, ProtocolError, Tensor


class Described(Protocol):
    """A tensor, or what a header says of one."""

    @property
    def name(self) -> str: ...

    @property
    def datatype(self) -> str: ...

    @property
    def shape(self) -> tuple[int, ...]: ...


def validate_described(config: ModelConfig, tensors: Iterable[Described]) -> int:
    """The number of rows of a request that fits; 1 for a model without a batch axis.

    Raises:
        ProtocolError: names, datatypes, shapes or batch sizes do not fit; says what was expected
            and what came.
    """
    specs = {spec.name: spec for spec in config.inputs}
    rows: dict[str, int] = {}
    for tensor in tensors:
        if tensor.name not in specs:
            raise ProtocolError(
                f"unexpected input {tensor.name!r}; model {config.name!r} has {', '.join(specs)}"
            )
        if tensor.name in rows:
            raise ProtocolError(f"input {tensor.name!r} came twice")
        _check(config, specs[tensor.name], tensor)
        rows[tensor.name] = tensor.shape[0] if config.batched else 1
    missing = [name for name in specs if name not in rows]
    if missing:
        raise ProtocolError(f"missing inputs of model {config.name!r}: {', '.join(missing)}")
    if len(set(rows.values())) != 1:
        raise ProtocolError(f"inputs have different batch sizes: {rows}")
    count = next(iter(rows.values()))
    if config.batched and not 1 <= count <= config.max_batch_size:
        raise ProtocolError(
            f"batch size {count} is outside 1..{config.max_batch_size} of model {config.name!r}"
        )
    return count


def validate_inputs(config: ModelConfig, tensors: Sequence[Tensor]) -> dict[str, Array]:
    """Input name to array, complete, of equal batch size, and of values that pass the checks.

    Raises:
        ProtocolError: as ``validate_described`` and ``check_values``.
    """
    validate_described(config, tensors)
    arrays = {tensor.name: tensor.array for tensor in tensors}
    check_values(config, arrays)
    return arrays


def check_values(config: ModelConfig, arrays: Mapping[str, Array]) -> None:
    """Apply the checks that the configuration asks for, if any.

    Raises:
        ProtocolError: a value that is not allowed.
    """
    for name, check in config.checks.items():
        check.apply(name, arrays[name])


def _check(config: ModelConfig, spec: TensorSpec, tensor: Described) -> None:
    if tensor.datatype != spec.datatype:
        raise ProtocolError(
            f"input {spec.name!r}: expected datatype {spec.datatype}, got {tensor.datatype}"
        )
    expected, got = config.wire_dims(spec), tensor.shape
    fits = len(expected) == len(got) and all(
        want in (-1, have) for want, have in zip(expected, got, strict=True)
    )
    if not fits:
        raise ProtocolError(
            f"input {spec.name!r}: expected shape {list(expected)}, got {list(got)}"
        )
