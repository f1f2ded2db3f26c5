"""Tensor values in JSON: flat or nested lists in, flat lists out, nothing guessed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from serving.protocol.tensor import NUMPY_TYPES, Array, ProtocolError, Tensor, as_bytes

BINARY_ONLY = frozenset({"FP16", "BF16"})
_NUMBERS: Mapping[str, set[type]] = {"b": {bool}, "f": {int, float}}


def from_json(data: object, label: str, datatype: str, shape: tuple[int, ...]) -> Array:
    """The values of ``data`` as a flat array.

    Raises:
        ProtocolError: their count, kind or range does not fit, or the datatype travels only as
            binary data.
    """
    if datatype in BINARY_ONLY:
        raise ProtocolError(f"{label}: {datatype} cannot travel as JSON; send binary data")
    values = _flatten(data, label, len(shape))
    if len(values) != math.prod(shape):
        raise ProtocolError(
            f"{label}: shape {list(shape)} needs {math.prod(shape)} values, got {len(values)}"
        )
    if datatype == "BYTES":
        if not all(isinstance(value, str) for value in values):
            raise ProtocolError(f"{label}: BYTES elements in JSON must be text")
        array = np.empty(len(values), dtype=np.object_)
        array[:] = [value.encode() for value in values]
        return array
    return _numbers(values, label, datatype)


def to_json(tensor: Tensor) -> list[str] | Array:
    """The values of ``tensor``, flat and row-major, for ``orjson``.

    Raises:
        ProtocolError: JSON has no way to write them.
    """
    if tensor.datatype in BINARY_ONLY:
        raise ProtocolError(
            f"tensor {tensor.name!r}: {tensor.datatype} cannot travel as JSON; ask for binary data"
        )
    if tensor.datatype == "BYTES":
        try:
            return [as_bytes(value).decode() for value in tensor.array.ravel()]
        except UnicodeDecodeError:
            raise ProtocolError(
                f"tensor {tensor.name!r} holds bytes that are not text; ask for binary data"
            ) from None
    if tensor.array.dtype.kind == "f" and not np.isfinite(tensor.array).all():
        raise ProtocolError(
            f"tensor {tensor.name!r} holds NaN or infinity, which JSON has no word for; "
            "ask for binary data"
        )
    flat = np.ascontiguousarray(tensor.array).reshape(-1)
    # As FP64: the shortest text of an FP32 is not always read back as the same FP32.
    return flat.astype(np.float64) if flat.dtype.kind == "f" else flat


def _numbers(values: list[Any], label: str, datatype: str) -> Array:
    dtype = np.dtype(NUMPY_TYPES[datatype])
    allowed = _NUMBERS.get(dtype.kind, {int})
    # Sets of types and extremes, because a Python loop over an image's pixels is too slow.
    for kind in set(map(type, values)) - allowed:
        culprit = next(value for value in values if type(value) is kind)
        raise ProtocolError(f"{label}: {culprit!r} is not a {datatype}")
    if dtype.kind in "iu" and values:
        bounds = np.iinfo(dtype)
        for extreme in (min(values), max(values)):
            if not bounds.min <= extreme <= bounds.max:
                raise ProtocolError(f"{label}: {extreme} does not fit {datatype}")
    with np.errstate(over="ignore"):
        array = np.array(values, dtype=dtype)
    if dtype.kind == "f" and not np.isfinite(array).all():
        # JSON has no infinity, so the cast has made it.
        culprit = values[int(np.argmin(np.isfinite(array)))]
        raise ProtocolError(f"{label}: {culprit!r} does not fit {datatype}")
    return array


def _flatten(data: object, label: str, rank: int) -> list[Any]:
    """Row-major values of a list that may be nested; the shape given beside it rules."""
    values = data if isinstance(data, list) else [data]
    depth = 0
    while list in set(map(type, values)):
        depth += 1
        if depth >= rank:
            raise ProtocolError(f"{label}: 'data' is nested deeper than its {rank} axes")
        values = [one for item in values for one in (item if isinstance(item, list) else [item])]
    return values
