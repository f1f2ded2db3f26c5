"""Open Inference Protocol v2 over HTTP: JSON and the binary tensor extension, both directions.

Sources: the protocol's REST definition (https://github.com/kserve/open-inference-protocol) and
Triton's binary tensor data extension (``Inference-Header-Content-Length``).

The codec is pure: bytes in, frozen values out. Servers and the load generator share it.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import orjson

HEADER_LENGTH = "Inference-Header-Content-Length"

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
    "FP32": np.float32,
    "FP64": np.float64,
    "BYTES": np.object_,
}
DATATYPES: Mapping[np.dtype[Any], str] = {np.dtype(v): k for k, v in NUMPY_TYPES.items()}

_BINARY_ONLY = frozenset({"FP16", "BF16"})
_UNSUPPORTED_OF_OUTPUTS = ("classification", "shared_memory_region")
_MAX_DIGITS = 18
_JSON_NUMBERS: Mapping[str, set[type]] = {"b": {bool}, "f": {int, float}}


class ProtocolError(ValueError):
    """A body that breaks the protocol; the message says what was expected and what came."""


@dataclass(frozen=True)
class Tensor:
    """A named array. ``array`` has the tensor's shape; BYTES elements are ``bytes``."""

    name: str
    datatype: str
    array: Array

    @classmethod
    def of(cls, name: str, array: Array) -> Tensor:
        """Name the datatype after the array's own type."""
        kind = np.dtype(np.object_) if array.dtype.kind in "SU" else array.dtype
        return cls(name, DATATYPES[kind], array)


@dataclass(frozen=True)
class OutputRequest:
    name: str
    binary: bool


@dataclass(frozen=True)
class InferRequest:
    """What a client asks for.

    Attributes:
        outputs: the outputs wanted; empty means all of them.
        binary_default: whether outputs that are not named travel as binary data.
    """

    inputs: tuple[Tensor, ...]
    id: str = ""
    outputs: tuple[OutputRequest, ...] = ()
    binary_default: bool = False


def encode_request(inputs: Sequence[Tensor], *, binary: bool = True) -> tuple[bytes, int | None]:
    """A request body and the length of its JSON part (``None`` when the body is all JSON)."""
    header: dict[str, Any] = {"inputs": []}
    if binary:
        header["parameters"] = {"binary_data_output": True}
    blobs = [_encode_tensor(tensor, binary, header["inputs"]) for tensor in inputs]
    return _join(header, blobs)


def decode_request(body: bytes | memoryview, header_length: int | None) -> InferRequest:
    """Take a request body apart. Binary tensors are views of ``body``, not copies.

    Raises:
        ProtocolError: anything that does not fit; always the client's fault.
    """
    header, blob = _split(body, header_length)
    parameters = header.get("parameters") or {}
    default = bool(parameters.get("binary_data_output", False))
    outputs = tuple(_output_request(item, default) for item in _items(header, "outputs"))
    inputs = _decode_tensors(_items(header, "inputs"), blob, "input")
    if not inputs:
        raise ProtocolError("the request has no inputs")
    identity = _text(header, "id", "the request") if header.get("id") is not None else ""
    return InferRequest(inputs, identity, outputs, default)


def encode_response(
    model_name: str, model_version: int, request: InferRequest, outputs: Sequence[Tensor]
) -> tuple[bytes, int | None]:
    """A response body with the outputs that ``request`` asked for, each as it asked for it.

    Raises:
        ProtocolError: an output was asked for that the model does not have, or one that JSON
            cannot carry.
    """
    header: dict[str, Any] = {"model_name": model_name, "model_version": str(model_version)}
    if request.id:
        header["id"] = request.id
    header["outputs"] = []
    known = {tensor.name: tensor for tensor in outputs}
    wanted = request.outputs or tuple(OutputRequest(name, request.binary_default) for name in known)
    blobs = []
    for output in wanted:
        if output.name not in known:
            raise ProtocolError(
                f"output {output.name!r} was asked for; the model has {', '.join(known)}"
            )
        blobs.append(_encode_tensor(known[output.name], output.binary, header["outputs"]))
    return _join(header, blobs)


def decode_response(body: bytes | memoryview, header_length: int | None) -> dict[str, Tensor]:
    """The outputs in a response body, by name.

    Raises:
        ProtocolError: the body is not a v2 response.
    """
    header, blob = _split(body, header_length)
    return {t.name: t for t in _decode_tensors(_items(header, "outputs"), blob, "output")}


def parse_header_length(text: str | None) -> int | None:
    """The value of the ``Inference-Header-Content-Length`` header.

    Raises:
        ProtocolError: it is not a whole number.
    """
    if text is None:
        return None
    if not (text.isascii() and text.isdecimal() and len(text) <= _MAX_DIGITS):
        raise ProtocolError(f"{HEADER_LENGTH} must be a whole number, got {text[:40]!r}")
    return int(text)


def _output_request(item: Mapping[str, Any], binary_default: bool) -> OutputRequest:
    name = _text(item, "name", "an output")
    parameters = item.get("parameters") or {}
    for unsupported in _UNSUPPORTED_OF_OUTPUTS:
        if parameters.get(unsupported):
            raise ProtocolError(f"output {name!r}: {unsupported!r} is not supported")
    return OutputRequest(name, bool(parameters.get("binary_data", binary_default)))


def _split(
    body: bytes | memoryview, header_length: int | None
) -> tuple[dict[str, Any], memoryview]:
    view = memoryview(body)
    length = len(view) if header_length is None else header_length
    if length > len(view):
        raise ProtocolError(f"{HEADER_LENGTH} is {length} but the body has {len(view)} bytes")
    try:
        header = orjson.loads(view[:length])
    except orjson.JSONDecodeError as error:
        hint = f"; with binary data {HEADER_LENGTH} must state the length of the JSON part"
        raise ProtocolError(
            f"the first {length} bytes are not JSON: {error}{hint if header_length is None else ''}"
        ) from None
    if not isinstance(header, dict):
        raise ProtocolError(f"the JSON part must be an object, got {type(header).__name__}")
    if not isinstance(header.get("parameters") or {}, dict):
        raise ProtocolError("'parameters' must be an object")
    return header, view[length:]


def _items(header: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    items = header.get(key) or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise ProtocolError(f"{key!r} must be a list of objects")
    if not all(isinstance(item.get("parameters") or {}, dict) for item in items):
        raise ProtocolError(f"'parameters' in {key!r} must be objects")
    return items


def _text(item: Mapping[str, Any], key: str, what: str) -> str:
    value = item.get(key)
    if not isinstance(value, str):
        raise ProtocolError(f"{what} must have a text {key!r}, got {value!r}")
    return value


def _decode_tensors(
    items: Sequence[Mapping[str, Any]], blob: memoryview, what: str
) -> tuple[Tensor, ...]:
    tensors = []
    for item in items:
        tensor, blob = _decode_tensor(item, blob, what)
        tensors.append(tensor)
    if len(blob):
        raise ProtocolError(f"{len(blob)} bytes follow the last {what}")
    return tuple(tensors)


def _decode_tensor(
    item: Mapping[str, Any], blob: memoryview, what: str
) -> tuple[Tensor, memoryview]:
    name = _text(item, "name", f"an {what}")
    label = f"{what} {name!r}"
    datatype = _text(item, "datatype", label)
    if datatype not in NUMPY_TYPES:
        raise ProtocolError(
            f"{label}: datatype {datatype!r} is not one of {', '.join(NUMPY_TYPES)}"
        )
    shape = _shape(item.get("shape"), label)
    size = (item.get("parameters") or {}).get("binary_data_size")
    if size is None:
        array = _from_json(item, label, datatype, shape)
        return Tensor(name, datatype, _shaped(array, label, shape)), blob
    if isinstance(size, bool) or not isinstance(size, int) or size < 0:
        raise ProtocolError(f"{label}: binary_data_size must be a whole number, got {size!r}")
    if size > len(blob):
        raise ProtocolError(f"{label}: binary_data_size is {size} but {len(blob)} bytes are left")
    if "data" in item:
        raise ProtocolError(f"{label} has both 'data' and a binary_data_size; send one of them")
    array = from_binary(blob[:size], label, datatype, shape)
    return Tensor(name, datatype, _shaped(array, label, shape)), blob[size:]


def _shape(value: object, label: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value
    ):
        raise ProtocolError(f"{label}: shape must be a list of whole numbers, got {value!r}")
    return tuple(value)


def _shaped(array: Array, label: str, shape: tuple[int, ...]) -> Array:
    try:
        return array.reshape(shape)
    except (ValueError, OverflowError) as error:
        # The count fits, yet no array can be so: too many axes, or a huge one beside a zero.
        raise ProtocolError(f"{label}: shape of {len(shape)} axes is impossible: {error}") from None


def _from_json(item: Mapping[str, Any], label: str, datatype: str, shape: tuple[int, ...]) -> Array:
    if datatype in _BINARY_ONLY:
        raise ProtocolError(f"{label}: {datatype} cannot travel as JSON; send binary data")
    if "data" not in item:
        raise ProtocolError(f"{label} has neither 'data' nor a binary_data_size")
    values = _flatten(item["data"], label, len(shape))
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


def _numbers(values: list[Any], label: str, datatype: str) -> Array:
    dtype = np.dtype(NUMPY_TYPES[datatype])
    allowed = _JSON_NUMBERS.get(dtype.kind, {int})
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


def from_binary(blob: memoryview, label: str, datatype: str, shape: tuple[int, ...]) -> Array:
    count = math.prod(shape)
    if datatype == "BYTES":
        return _bytes_elements(blob, label, count)
    dtype = np.dtype(NUMPY_TYPES[datatype])
    if len(blob) != count * dtype.itemsize:
        raise ProtocolError(
            f"{label}: shape {list(shape)} of {datatype} needs {count * dtype.itemsize} bytes, "
            f"got {len(blob)}"
        )
    return np.frombuffer(blob, dtype=dtype)


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


def _encode_tensor(tensor: Tensor, binary: bool, into: list[dict[str, Any]]) -> bytes | memoryview:
    """Append the tensor's JSON description to ``into`` and return its binary part."""
    item: dict[str, Any] = {
        "name": tensor.name,
        "datatype": tensor.datatype,
        "shape": list(tensor.array.shape),
    }
    into.append(item)
    if binary:
        blob = to_binary(tensor)
        item["parameters"] = {"binary_data_size": len(blob)}
        return blob
    if tensor.datatype in _BINARY_ONLY:
        raise ProtocolError(
            f"tensor {tensor.name!r}: {tensor.datatype} cannot travel as JSON; ask for binary data"
        )
    item["data"] = _to_json(tensor)
    return b""


def to_binary(tensor: Tensor) -> bytes | memoryview:
    if tensor.datatype == "BYTES":
        elements = (_as_bytes(value) for value in tensor.array.ravel())
        return b"".join(struct.pack("<I", len(value)) + value for value in elements)
    array = np.ascontiguousarray(tensor.array)
    return array.reshape(-1).view(np.uint8).data


def _to_json(tensor: Tensor) -> list[str] | Array:
    if tensor.datatype == "BYTES":
        try:
            return [_as_bytes(value).decode() for value in tensor.array.ravel()]
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


def _as_bytes(value: object) -> bytes:
    return value if isinstance(value, bytes) else str(value).encode()


def _join(header: dict[str, Any], blobs: Sequence[bytes | memoryview]) -> tuple[bytes, int | None]:
    text = orjson.dumps(header, option=orjson.OPT_SERIALIZE_NUMPY)
    if not any(isinstance(blob, memoryview) or blob for blob in blobs):
        return text, None
    return b"".join([text, *blobs]), len(text)
