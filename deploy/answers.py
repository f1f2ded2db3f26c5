"""One inference, made from what the model says of itself, and whether answers are equal. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

FREE_AXIS = 64
"""For axes of any length other than the batch: what pictures of the zoo can be cut to."""
_FLOATS, _WHOLE = ("FP32", "FP64"), ("INT8", "INT16", "INT32", "INT64", "UINT8", "BOOL")


def request(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The body of an inference request, JSON, the same for the same model.

    Raises:
        ValueError: an input is of a type that JSON numbers do not hold.
    """
    return {"inputs": [_input(spec) for spec in metadata["inputs"]]}


def _input(spec: Mapping[str, Any]) -> dict[str, Any]:
    shape = [_axis(place, length) for place, length in enumerate(spec["shape"])]
    count = math.prod(shape)
    datatype = spec["datatype"]
    if datatype in _FLOATS:
        data: list[float] = [(37 * place % 101) / 101 for place in range(count)]
    elif datatype in _WHOLE:
        data = [place % 2 for place in range(count)]
    else:
        raise ValueError(f"input {spec['name']!r} has type {datatype}")
    return {"name": spec["name"], "datatype": datatype, "shape": shape, "data": data}


def _axis(place: int, length: int) -> int:
    if length > 0:
        return length
    return 1 if place == 0 else FREE_AXIS


def difference(one: Mapping[str, Any], other: Mapping[str, Any]) -> float:
    """The largest difference of two answers, as a share of the largest value of each output.

    Infinite where names or shapes differ, or a number is none.
    """
    left, right = _outputs(one), _outputs(other)
    if left.keys() != right.keys():
        return math.inf
    return max((_share(left[name], right[name]) for name in left), default=math.inf)


def _outputs(answer: Mapping[str, Any]) -> dict[str, tuple[list[int], Sequence[float]]]:
    return {item["name"]: (item["shape"], item["data"]) for item in answer["outputs"]}


def _share(
    one: tuple[list[int], Sequence[float]], other: tuple[list[int], Sequence[float]]
) -> float:
    (shape, left), (other_shape, right) = one, other
    if shape != other_shape or len(left) != len(right) or not left:
        return math.inf
    if not all(map(math.isfinite, (*left, *right))):
        return math.inf
    largest = max(map(abs, left)) or 1.0
    return max(abs(a - b) for a, b in zip(left, right, strict=True)) / largest
