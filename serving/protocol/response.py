"""Inference responses: a server's body, and what a client reads from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from serving.protocol.body import describe_tensor, join
from serving.protocol.header import (
    OutputRequest,
    Region,
    Wishes,
    json_object,
    split_body,
    tensor_headers,
)
from serving.protocol.request import decode_tensors
from serving.protocol.tensor import ProtocolError, Tensor, to_binary

WriteRegion = Callable[[Region, bytes | memoryview], int]


def encode_response(
    model_name: str,
    model_version: int,
    wishes: Wishes,
    outputs: Sequence[Tensor],
    write_region: WriteRegion | None = None,
) -> tuple[bytes, int | None]:
    """A response body with the outputs that were asked for, each as it was asked for.

    Outputs for shared memory go through ``write_region``, which returns their bytes.

    Raises:
        ProtocolError: an output was asked for that the model does not have, or one that JSON
            cannot carry.
    """
    header = describe_response(model_name, model_version, wishes)
    known = {tensor.name: tensor for tensor in outputs}
    blobs = []
    for output in wanted_outputs(wishes, known):
        if output.region is not None:
            if write_region is None:
                raise ProtocolError(f"output {output.name!r}: shared memory is not supported")
            tensor = known[output.name]
            size = write_region(output.region, to_binary(tensor))
            _describe_shared(tensor, output.region, size, header["outputs"])
            continue
        blobs.append(describe_tensor(known[output.name], output.binary, header["outputs"]))
    return join(header, blobs)


def describe_response(model_name: str, model_version: int, wishes: Wishes) -> dict[str, Any]:
    """The JSON part of a response, its outputs still empty."""
    header: dict[str, Any] = {"model_name": model_name, "model_version": str(model_version)}
    if wishes.id:
        header["id"] = wishes.id
    header["outputs"] = []
    return header


def wanted_outputs(wishes: Wishes, known: Mapping[str, object]) -> tuple[OutputRequest, ...]:
    """The outputs that are wanted, in the client's order.

    Raises:
        ProtocolError: the model has no such output, or it was named twice.
    """
    if not wishes.outputs:
        return tuple(OutputRequest(name, wishes.binary_default) for name in known)
    names = [output.name for output in wishes.outputs]
    for index, name in enumerate(names):
        if name not in known:
            raise ProtocolError(f"output {name!r} was asked for; the model has {', '.join(known)}")
        if name in names[:index]:
            raise ProtocolError(f"output {name!r} was asked for twice")
    return wishes.outputs


def _describe_shared(tensor: Tensor, region: Region, size: int, into: list[dict[str, Any]]) -> None:
    """Append the description of an output of ``size`` bytes that lies in shared memory."""
    into.append(
        {
            "name": tensor.name,
            "datatype": tensor.datatype,
            "shape": list(tensor.array.shape),
            "parameters": {
                "shared_memory_region": region.name,
                "shared_memory_offset": region.offset,
                "shared_memory_byte_size": size,
            },
        }
    )


def decode_response(body: bytes | memoryview, header_length: int | None) -> dict[str, Tensor]:
    """The outputs in a response body, by name.

    Raises:
        ProtocolError: the body is not a v2 response.
    """
    text, blob = split_body(body, header_length)
    header = json_object(text, with_binary=header_length is not None)
    headers = tensor_headers(header, "outputs", "output")
    return {tensor.name: tensor for tensor in decode_tensors(headers, blob, "output")}
