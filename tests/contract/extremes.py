"""The values of each datatype that are easiest to lose on the way."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from serving.protocol import NUMPY_TYPES, Array
from tests.sample_models import ELEMENT_TYPES, HALVES

_FLOATS = {
    "FP32": [3.4028235e38, 1e-45, -0.0, np.inf],
    "FP64": [1.7976931348623157e308, 5e-324, 0.1, np.nan],
}


def _of(datatype: str) -> Array:
    dtype = np.dtype(NUMPY_TYPES[datatype])
    if datatype == "BYTES":
        return np.array([["ä".encode(), b""], [b"b\0c", b"cc"]], np.object_)
    if datatype == "BOOL":
        return np.array([[True, False], [False, True]])
    if datatype in _FLOATS:
        return np.array(_FLOATS[datatype]).astype(dtype).reshape(2, 2)
    limits = np.iinfo(dtype)
    return np.array([[limits.min, limits.max], [0, 1]], dtype)


EXTREMES: Mapping[str, Array] = {
    f"x_{kind.lower()}": _of(kind) for kind in ELEMENT_TYPES if kind not in HALVES
}
"""The inputs of model ``datatypes``, two rows each."""

NOTHING: Mapping[str, Array] = {name: array[:0] for name, array in EXTREMES.items()}
"""The same without a row."""


def half_bits(rows: int) -> dict[str, Array]:
    """Inputs of model ``halves``: any bits at all, so also NaN, infinity and the smallest."""
    bits = np.random.default_rng(rows).integers(0, 1 << 16, (rows, 4)).astype(np.uint16)
    return {f"x_{kind.lower()}": bits.view(NUMPY_TYPES[kind]) for kind in HALVES}


def finite(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """``arrays`` with 0.5 in place of what JSON has no word for."""
    return {
        name: np.where(np.isfinite(array), array, array.dtype.type(0.5))
        if array.dtype.kind == "f"
        else array
        for name, array in arrays.items()
    }


def assert_same_bits(found: Array, wanted: Array) -> None:
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
    if wanted.dtype == np.object_:
        assert found.tolist() == wanted.tolist()
    else:
        assert found.tobytes() == wanted.tobytes()
