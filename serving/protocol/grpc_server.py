"""A server's side of gRPC: what a ``ModelInferRequest`` describes, and the response to it.

Values may come in ``raw_input_contents`` or, typed, in each tensor's ``contents``; both are bytes
from here on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2

from serving.protocol.header import (
    InferHeader,
    OutputRequest,
    Region,
    TensorHeader,
    Wishes,
)
from serving.protocol.tensor import NUMPY_TYPES, Array, ProtocolError, Tensor, to_binary

_CONTENTS: Mapping[str, str] = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


def describe_request(message: Any) -> tuple[InferHeader, list[bytes]]:
    """The header of a ``ModelInferRequest``, and the bytes of those inputs that bring any.

    Raises:
        ProtocolError: anything that does not fit; always the client's fault.
    """
    raw = list(message.raw_input_contents)
    typed = [tensor for tensor in message.inputs if tensor.HasField("contents")]
    if raw and typed:
        raise ProtocolError(
            f"input {typed[0].name!r} has contents, and there are raw_input_contents; send one kind"
        )
    headers, blobs = [], []
    for tensor in message.inputs:
        header, blob = _input(tensor, raw)
        headers.append(header)
        if blob is not None:
            blobs.append(blob)
    if raw:
        raise ProtocolError(f"{len(raw)} raw_input_contents belong to no input")
    if not headers:
        raise ProtocolError("the request has no inputs")
    parameters = message.parameters
    return InferHeader(
        tuple(headers),
        id=message.id,
        outputs=tuple(_output(output) for output in message.outputs),
        binary_default=True,
        timeout_us=_whole(parameters, "timeout", "the request") if "timeout" in parameters else 0,
    ), blobs


def start_response(model_name: str, version: int, wishes: Wishes) -> Any:
    """A ``ModelInferResponse`` without outputs."""
    return service_pb2.ModelInferResponse(
        model_name=model_name, model_version=str(version), id=wishes.id
    )


def add_output(response: Any, tensor: Tensor) -> None:
    """Append an output that travels in the response."""
    response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    response.raw_output_contents.append(bytes(to_binary(tensor)))


def add_shared_output(response: Any, tensor: Tensor, region: Region, size: int) -> None:
    """Append an output of ``size`` bytes that lies in shared memory.

    Its empty entry keeps the others in their places: clients find an output's bytes by its index.
    """
    response.raw_output_contents.append(b"")
    output = response.outputs.add(name=tensor.name, datatype=tensor.datatype, shape=tensor.shape)
    output.parameters["shared_memory_region"].string_param = region.name
    output.parameters["shared_memory_offset"].int64_param = region.offset
    output.parameters["shared_memory_byte_size"].int64_param = size


def _input(tensor: Any, raw: list[bytes]) -> tuple[TensorHeader, bytes | None]:
    label = f"input {tensor.name!r}"
    if tensor.datatype not in NUMPY_TYPES:
        known = ", ".join(NUMPY_TYPES)
        raise ProtocolError(f"{label}: datatype {tensor.datatype!r} is not one of {known}")
    shape = tuple(tensor.shape)
    if any(length < 0 for length in shape):
        raise ProtocolError(f"{label}: shape must be whole numbers, got {list(shape)}")
    region = _region(tensor.parameters, label)
    if region is not None:
        return TensorHeader(tensor.name, tensor.datatype, shape, region=region), None
    if tensor.HasField("contents"):
        blob = _typed_bytes(tensor, label)
    elif raw:
        blob = raw.pop(0)
    else:
        raise ProtocolError(f"{label} has neither contents nor raw_input_contents")
    return TensorHeader(tensor.name, tensor.datatype, shape, binary_size=len(blob)), blob


def _typed_bytes(tensor: Any, label: str) -> bytes:
    field = _CONTENTS.get(tensor.datatype)
    if field is None:
        raise ProtocolError(f"{label}: {tensor.datatype} travels in raw_input_contents only")
    if [found.name for found, _ in tensor.contents.ListFields()] not in ([field], []):
        raise ProtocolError(f"{label}: {tensor.datatype} travels in {field}")
    values = getattr(tensor.contents, field)
    if tensor.datatype == "BYTES":
        elements = np.empty(len(values), np.object_)
        elements[:] = list(values)
        return bytes(to_binary(Tensor(tensor.name, "BYTES", elements)))
    dtype = np.dtype(NUMPY_TYPES[tensor.datatype])
    if dtype.kind in "iu" and values:
        bounds = np.iinfo(dtype)
        for extreme in (min(values), max(values)):
            if not bounds.min <= extreme <= bounds.max:
                raise ProtocolError(f"{label}: {extreme} does not fit {tensor.datatype}")
    array: Array = np.array(values, dtype)
    return array.tobytes()


def _output(output: Any) -> OutputRequest:
    label = f"output {output.name!r}"
    if "classification" in output.parameters:
        raise ProtocolError(f"{label}: 'classification' is not supported")
    return OutputRequest(output.name, True, _region(output.parameters, label))


def _region(parameters: Mapping[str, Any], label: str) -> Region | None:
    if "shared_memory_region" not in parameters:
        return None
    offset = "shared_memory_offset"
    return Region(
        parameters["shared_memory_region"].string_param,
        _whole(parameters, offset, label) if offset in parameters else 0,
        _whole(parameters, "shared_memory_byte_size", label),
    )


def _whole(parameters: Mapping[str, Any], key: str, label: str) -> int:
    kind = parameters[key].WhichOneof("parameter_choice") if key in parameters else None
    value = getattr(parameters[key], kind) if kind in ("int64_param", "uint64_param") else -1
    if value < 0:
        raise ProtocolError(f"{label}: {key} must be a whole number")
    return int(value)
