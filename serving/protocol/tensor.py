"""A named array, its datatype's name, and its bytes as they travel."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]

NUMPY_TYPES: Mapping[str, npt.DTypeLike] = {
    "BOOL": np.bool_,
    "UINT8": np.uint8,
    "UINT16": np.uint16,
    "UINT32": np.uint32,
    "UINT64": np.uint64,
    "INT8": np.int8,
    "INT16": np.int16,
    "INT32": np.int32,
    "INT64": np.int64,
    "FP16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}
DATATYPES: Mapping[np.dtype[Any], str] = {np.dtype(v): k for k, v in NUMPY_TYPES.items()}


class ProtocolError(ValueError):
    """A body that breaks the protocol; the message says what was expected and what came."""


@dataclass(frozen=True)
class Tensor:
    """A named array. ``array`` has the tensor's shape; BYTES elements are ``bytes``."""

    name: str
    datatype: str
    array: Array

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @classmethod
    def of(cls, name: str, array: Array) -> Tensor:
        """Name the datatype after the array's own type."""
        kind = np.dtype(np.object_) if array.dtype.kind in "SU" else array.dtype
        return cls(name, DATATYPES[kind], array)


def from_binary(
    blob: bytes | memoryview, label: str, datatype: str, shape: tuple[int, ...]
) -> Array:
    """The array in ``blob``, flat; a view, except for BYTES.

    Raises:
        ProtocolError: the bytes are not as many as the shape needs.
    """
    count = math.prod(shape)
    if datatype == "BYTES":
        return _bytes_elements(memoryview(blob), label, count)
    dtype = np.dtype(NUMPY_TYPES[datatype])
    if len(blob) != count * dtype.itemsize:
        raise ProtocolError(
            f"{label}: shape {list(shape)} of {datatype} needs {count * dtype.itemsize} bytes, "
            f"got {len(blob)}"
        )
    array = np.frombuffer(blob, dtype=dtype)
    if datatype == "BOOL" and array.view(np.uint8).max(initial=0) > 1:
        raise ProtocolError(f"{label}: a BOOL is a byte of 0 or 1")
    return array


def to_binary(tensor: Tensor) -> bytes | memoryview:
    """The tensor's bytes, row-major; a view where the array allows it."""
    if tensor.datatype == "BYTES":
        elements = (as_bytes(value) for value in tensor.array.ravel())
        return b"".join(struct.pack("<I", len(value)) + value for value in elements)
    array = np.ascontiguousarray(tensor.array)
    return array.reshape(-1).view(np.uint8).data


def shaped(array: Array, label: str, shape: tuple[int, ...]) -> Array:
    """``array`` in ``shape``.

    Raises:
        ProtocolError: the count fits, yet no array can be so: too many axes, or a huge one beside
            a zero.
    """
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:
        raise ProtocolError(f"{label}: shape of {len(shape)} axes is impossible: {error}") from None


def as_bytes(value: object) -> bytes:
    """One BYTES element as it travels."""
    return value if isinstance(value, bytes) else str(value).encode()


def _bytes_elements(blob: memoryview, label: str, count: int) -> Array:
    """Split length-prefixed elements: four bytes, little endian, then that many bytes."""
    elements, at = [], 0
    while at < len(blob):
        if at + 4 > len(blob):
            raise ProtocolError(f"{label}: {len(blob) - at} bytes where a 4-byte length belongs")
        (length,) = struct.unpack_from("<I", blob, at)
        at += 4
        if at + length > len(blob):
            raise ProtocolError(f"{label}: an element of {length} bytes runs past the data")
        elements.append(bytes(blob[at : at + length]))
        at += length
    if len(elements) != count:
        raise ProtocolError(f"{label}: the shape needs {count} elements, got {len(elements)}")
    array = np.empty(count, dtype=np.object_)
    array[:] = elements
    return array
