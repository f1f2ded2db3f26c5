"""Inputs made up for a model whose meaning is unknown: random, small, and the same every time.

Two parameters of ``config.pbtxt`` steer them. ``sample_shape.<input>`` is a shape without the
batch axis, such as ``3,480,640``, for axes of no fixed length. ``sample_range.<input>`` bounds the
values, both ends included, such as ``0..99``. Integers are 0 or 1 otherwise, since larger ones are
often indices into a table.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from serving.errors import ModelError
from serving.models.checks import RANGE
from serving.protocol import NUMPY_TYPES, Array

SHAPE_PREFIX = "sample_shape."
RANGE_PREFIX = "sample_range."
TEXT = b"infersweep"
_SHAPE = re.compile(r"\d+(?:,\d+)*")


@dataclass(frozen=True)
class ValueRange:
    """Attributes: ``low`` and ``high`` are inclusive."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"{_written(self.low)}..{_written(self.high)}"


@dataclass(frozen=True)
class Generated:
    """How values of one input are made.

    Attributes:
        dims: without the batch axis; ``None`` for those that the configuration states.
        values: ``None`` for 0 and 1, or normal deviates where the datatype is a float.
    """

    dims: tuple[int, ...] | None = None
    values: ValueRange | None = None


class Declared(Protocol):
    """An input as a configuration declares it."""

    @property
    def name(self) -> str: ...

    @property
    def datatype(self) -> str: ...

    @property
    def dims(self) -> tuple[int, ...]: ...


def parse_range(text: str) -> ValueRange:
    """``LOW..HIGH``; raises ValueError with what was expected."""
    found = RANGE.fullmatch(text)
    if not found or float(found[1]) > float(found[2]):
        raise ValueError("a range such as 0..99")
    return ValueRange(float(found[1]), float(found[2]))


def require_fit(values: ValueRange, datatype: str) -> None:
    """Raises ValueError with what was expected when an input of ``datatype`` has no such values."""
    if datatype in ("BYTES", "BOOL"):
        raise ValueError(f"no range for an input of {datatype}")
    dtype = np.dtype(NUMPY_TYPES[datatype])
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if values.low % 1 or values.high % 1 or values.low < bounds.min or values.high > bounds.max:
            raise ValueError(f"whole numbers that {datatype} can hold, such as 0..99")


def parse_generated(
    parameters: Mapping[str, str], inputs: Mapping[str, Declared], where: str
) -> dict[str, Generated]:
    """Input name to what the parameters say of it, if they do.

    Raises:
        ModelError: a parameter names no input, does not fit it, or cannot be read.
    """
    found: dict[str, Generated] = {}
    for key, text in parameters.items():
        prefix = next((p for p in (SHAPE_PREFIX, RANGE_PREFIX) if key.startswith(p)), None)
        if prefix is None:
            continue
        name = key.removeprefix(prefix)
        if name not in inputs:
            raise ModelError(
                f"{where}: parameter {key!r} names no input",
                hint=f"Inputs: {', '.join(inputs)}.",
            )
        so_far = found.get(name, Generated())
        try:
            found[name] = (
                Generated(_dims(text, inputs[name]), so_far.values)
                if prefix == SHAPE_PREFIX
                else Generated(so_far.dims, _values(text, inputs[name]))
            )
        except ValueError as error:
            raise ModelError(
                f"{where}: parameter {key!r} is {text!r}", hint=f"Write {error}."
            ) from None
    return found


def random_values(
    datatype: str, shape: tuple[int, ...], rng: np.random.Generator, values: ValueRange | None
) -> Array:
    """Values that no model chokes on, unless ``values`` says which."""
    if datatype == "BYTES":
        texts = np.empty(shape, dtype=np.object_)
        texts.fill(TEXT)
        return texts
    dtype = np.dtype(NUMPY_TYPES[datatype])
    if dtype.kind in "iub":
        low, high = (int(values.low), int(values.high)) if values else (0, 1)
        return rng.integers(low, high, shape, dtype=dtype, endpoint=True)
    if values:
        return rng.uniform(values.low, values.high, shape).astype(dtype)
    return rng.standard_normal(shape).astype(dtype)


def _written(number: float) -> str:
    """Such that the same number is read again."""
    return str(int(number)) if number == int(number) else repr(float(number))


def _dims(text: str, declared: Declared) -> tuple[int, ...]:
    dims = tuple(int(part) for part in text.split(",")) if _SHAPE.fullmatch(text) else ()
    fits = len(dims) == len(declared.dims) and all(
        have > 0 and want in (-1, have) for want, have in zip(declared.dims, dims, strict=True)
    )
    if not fits:
        raise ValueError(f"numbers above 0 that fit dims {list(declared.dims)}, such as 3,480,640")
    return dims


def _values(text: str, declared: Declared) -> ValueRange:
    values = parse_range(text)
    require_fit(values, declared.datatype)
    return values
