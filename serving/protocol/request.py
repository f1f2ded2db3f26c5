"""Inference requests: a client's body, and what a server reads from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from serving.protocol.body import describe_tensor, join
from serving.protocol.header import (
    ABSENT,
    Region,
    TensorHeader,
    Wishes,
    parse_header,
    split_body,
)
from serving.protocol.json_data import from_json
from serving.protocol.tensor import ProtocolError, Tensor, from_binary, shaped

ReadRegion = Callable[[Region], memoryview]


@dataclass(frozen=True)
class InferRequest(Wishes):
    """What a client asks for, with its tensors."""

    inputs: tuple[Tensor, ...]


def encode_request(inputs: Sequence[Tensor], *, binary: bool = True) -> tuple[bytes, int | None]:
    """A request body and the length of its JSON part (``None`` when the body is all JSON)."""
    header: dict[str, Any] = {"inputs": []}
    if binary:
        header["parameters"] = {"binary_data_output": True}
    blobs = [describe_tensor(tensor, binary, header["inputs"]) for tensor in inputs]
    return join(header, blobs)


def decode_request(body: bytes | memoryview, header_length: int | None) -> InferRequest:
    """Take a request body apart. Binary tensors are views of ``body``, not copies.

    Raises:
        ProtocolError: anything that does not fit; always the client's fault.
    """
    text, blob = split_body(body, header_length)
    header = parse_header(text, with_binary=header_length is not None)
    for tensor in header.inputs:
        if tensor.region is not None:
            raise ProtocolError(f"input {tensor.name!r}: shared memory is not supported")
    return InferRequest(
        decode_tensors(header.inputs, blob, "input"),
        id=header.id,
        outputs=header.outputs,
        binary_default=header.binary_default,
        timeout_us=header.timeout_us,
    )


def decode_tensors(
    headers: Sequence[TensorHeader],
    blob: memoryview,
    what: str,
    read_region: ReadRegion | None = None,
) -> tuple[Tensor, ...]:
    """The tensors that ``headers`` describe, with ``blob`` as their binary part.

    Those in shared memory come through ``read_region``; without it there must be none.
    """
    tensors = []
    for header in headers:
        if header.region is not None and read_region is not None:
            tensors.append(tensor_of(header, read_region(header.region), what))
            continue
        size = header.binary_size or 0
        if size > len(blob):
            raise ProtocolError(
                f"{what} {header.name!r}: binary_data_size is {size} but {len(blob)} bytes are left"
            )
        tensors.append(tensor_of(header, blob[:size], what))
        blob = blob[size:]
    if len(blob):
        raise ProtocolError(f"{len(blob)} bytes follow the last {what}")
    return tuple(tensors)


def tensor_of(header: TensorHeader, blob: bytes | memoryview, what: str = "input") -> Tensor:
    """One tensor from its bytes, or from its JSON values when it has them."""
    label = f"{what} {header.name!r}"
    if header.data is ABSENT:
        array = from_binary(blob, label, header.datatype, header.shape)
    else:
        array = from_json(header.data, label, header.datatype, header.shape)
    return Tensor(header.name, header.datatype, shaped(array, label, header.shape))
