"""The JSON part of a body: what it describes, before any tensor's bytes are touched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from serving.protocol.tensor import NUMPY_TYPES, ProtocolError

HEADER_LENGTH = "Inference-Header-Content-Length"
_MAX_DIGITS = 18
ABSENT = object()
"""Stands for JSON data that is not there; ``null`` is a value like any other."""


@dataclass(frozen=True)
class Region:
    """A part of a registered shared memory region."""

    name: str
    offset: int
    byte_size: int


@dataclass(frozen=True)
class TensorHeader:
    """A tensor as its JSON describes it; its values stand in exactly one of three places.

    Attributes:
        binary_size: how many bytes of the binary part are its own.
        region: where its bytes lie in shared memory.
        data: its JSON values, ``ABSENT`` when they are elsewhere.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]
    binary_size: int | None = None
    region: Region | None = None
    data: object = ABSENT


@dataclass(frozen=True)
class OutputRequest:
    """Attributes: ``binary`` or JSON; or the ``region`` of shared memory to write to."""

    name: str
    binary: bool
    region: Region | None = None


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What a client asks for beside its inputs.

    Attributes:
        outputs: the outputs wanted; empty means all of them.
        binary_default: whether outputs that are not named travel as binary data.
        timeout_us: how long the request may wait in a queue; 0 for as long as the model allows.
    """

    id: str = ""
    outputs: tuple[OutputRequest, ...] = ()
    binary_default: bool = False
    timeout_us: int = 0


@dataclass(frozen=True)
class InferHeader(Wishes):
    """A whole request without the bytes of its tensors."""

    inputs: tuple[TensorHeader, ...]


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


def split_body(
    body: bytes | memoryview, header_length: int | None
) -> tuple[memoryview, memoryview]:
    """The JSON part and the binary part.

    Raises:
        ProtocolError: the body is shorter than its header is said to be.
    """
    view = memoryview(body)
    length = len(view) if header_length is None else header_length
    if length > len(view):
        raise ProtocolError(f"{HEADER_LENGTH} is {length} but the body has {len(view)} bytes")
    return view[:length], view[length:]


def parse_header(text: bytes | memoryview, *, with_binary: bool) -> InferHeader:
    """Take the JSON part of an inference request apart.

    ``with_binary`` says whether its length was stated; a failure is told accordingly.

    Raises:
        ProtocolError: anything that does not fit; always the client's fault.
    """
    header = json_object(text, with_binary=with_binary)
    parameters = header.get("parameters") or {}
    default = bool(parameters.get("binary_data_output", False))
    inputs = tensor_headers(header, "inputs", "input")
    if not inputs:
        raise ProtocolError("the request has no inputs")
    return InferHeader(
        inputs,
        id=_text(header, "id", "the request") if header.get("id") is not None else "",
        outputs=tuple(_output_request(item, default) for item in _items(header, "outputs")),
        binary_default=default,
        timeout_us=_count(parameters, "timeout", "the request", default=0),
    )


def tensor_headers(header: Mapping[str, Any], key: str, what: str) -> tuple[TensorHeader, ...]:
    """The tensors under ``key``."""
    return tuple(_tensor_header(item, what) for item in _items(header, key))


def json_object(text: bytes | memoryview, *, with_binary: bool) -> dict[str, Any]:
    """The JSON part as an object."""
    try:
        header = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        hint = f"; with binary data {HEADER_LENGTH} must state the length of the JSON part"
        raise ProtocolError(
            f"the first {len(text)} bytes are not JSON: {error}{'' if with_binary else hint}"
        ) from None
    if not isinstance(header, dict):
        raise ProtocolError(f"the JSON part must be an object, got {type(header).__name__}")
    if not isinstance(header.get("parameters") or {}, dict):
        raise ProtocolError("'parameters' must be an object")
    return header


def _output_request(item: Mapping[str, Any], binary_default: bool) -> OutputRequest:
    name = _text(item, "name", "an output")
    label = f"output {name!r}"
    parameters = item.get("parameters") or {}
    if parameters.get("classification"):
        raise ProtocolError(f"{label}: 'classification' is not supported")
    binary = bool(parameters.get("binary_data", binary_default))
    return OutputRequest(name, binary, _region(parameters, label))


def _tensor_header(item: Mapping[str, Any], what: str) -> TensorHeader:
    name = _text(item, "name", f"an {what}")
    label = f"{what} {name!r}"
    datatype = _text(item, "datatype", label)
    if datatype not in NUMPY_TYPES:
        known = ", ".join(NUMPY_TYPES)
        raise ProtocolError(f"{label}: datatype {datatype!r} is not one of {known}")
    shape = _shape(item.get("shape"), label)
    parameters = item.get("parameters") or {}
    region = _region(parameters, label)
    size = None
    if parameters.get("binary_data_size") is not None:
        size = _count(parameters, "binary_data_size", label)
    data = item.get("data", ABSENT)
    places = [data is not ABSENT, size is not None, region is not None]
    if sum(places) != 1:
        found = "none" if not any(places) else "several"
        raise ProtocolError(
            f"{label} needs one of 'data', binary_data_size or shared_memory_region, has {found}"
        )
    return TensorHeader(name, datatype, shape, size, region, data)


def _region(parameters: Mapping[str, Any], label: str) -> Region | None:
    if parameters.get("shared_memory_region") is None:
        return None
    return Region(
        _text(parameters, "shared_memory_region", label),
        _count(parameters, "shared_memory_offset", label, default=0),
        _count(parameters, "shared_memory_byte_size", label),
    )


def _items(header: Mapping[str, Any], key: str) -> Sequence[dict[str, Any]]:
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


def _count(item: Mapping[str, Any], key: str, label: str, *, default: int | None = None) -> int:
    value = item.get(key, default)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ProtocolError(f"{label}: {key} must be a whole number, got {value!r}")
    return value


def _shape(value: object, label: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(
        isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in value
    ):
        raise ProtocolError(f"{label}: shape must be a list of whole numbers, got {value!r}")
    return tuple(value)
