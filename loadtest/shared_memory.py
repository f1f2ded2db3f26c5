"""Inputs in system shared memory: requests that name a place instead of carrying tensors.

For a server on this host (Triton's system shared memory extension). Outputs still come back over
the connection, because every reply is checked.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.shared_memory import SharedMemory
from typing import Any
from urllib.parse import urlsplit

import orjson
import tritonclient.http
from tritonclient.utils import InferenceServerException

from loadtest.payload import Payload
from serving.errors import ServerError
from serving.protocol import Tensor, decode_request, to_binary


@contextmanager
def shared_inputs(url: str, payloads: Sequence[Payload]) -> Iterator[list[Payload]]:
    """The same requests with their inputs in one region that the server at ``url`` has mapped.

    Raises:
        ServerError: the server refuses, or has no such extension.
    """
    requests = [decode_request(p.body, p.header_length).inputs for p in payloads]
    blobs = [[bytes(to_binary(tensor)) for tensor in request] for request in requests]
    size = sum(len(blob) for request in blobs for blob in request)
    name = f"infersweep-{os.getpid()}"
    region = SharedMemory(name, create=True, size=size)
    client = tritonclient.http.InferenceServerClient(urlsplit(url).netloc)
    try:
        joined = b"".join(blob for request in blobs for blob in request)
        placed, at = [], 0
        for payload, request, parts in zip(payloads, requests, blobs, strict=True):
            body = orjson.dumps(_request(name, request, parts, at))
            placed.append(replace(payload, body=body, header_length=len(body)))
            at += sum(map(len, parts))
        _fill(region, joined)
        _register(client, name, size, url)
        yield placed
        client.unregister_system_shared_memory(name)
    finally:
        client.close()
        region.close()
        region.unlink()


def _fill(region: SharedMemory, content: bytes) -> None:
    assert region.buf is not None
    region.buf[: len(content)] = content


def _request(
    region: str, tensors: Sequence[Tensor], parts: Sequence[bytes], at: int
) -> dict[str, Any]:
    inputs = []
    for tensor, part in zip(tensors, parts, strict=True):
        place = {
            "shared_memory_region": region,
            "shared_memory_byte_size": len(part),
            "shared_memory_offset": at,
        }
        inputs.append(
            {
                "name": tensor.name,
                "datatype": tensor.datatype,
                "shape": list(tensor.array.shape),
                "parameters": place,
            }
        )
        at += len(part)
    return {"parameters": {"binary_data_output": True}, "inputs": inputs}


def _register(
    client: tritonclient.http.InferenceServerClient, name: str, size: int, url: str
) -> None:
    try:
        client.register_system_shared_memory(name, f"/{name}", size)
    except InferenceServerException as error:
        raise ServerError(
            f"{url} takes no system shared memory: {error}",
            hint="Leave --shared-memory out, or load a server on this host that has it.",
        ) from None
