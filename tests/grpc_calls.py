"""gRPC calls and how they end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc import service_pb2_grpc

from serving.protocol import Array

Stub = service_pb2_grpc.GRPCInferenceServiceStub


@contextmanager
def stub_of(url: str, *options: tuple[str, int]) -> Iterator[Any]:
    """Calls to the server at ``grpc://host:port``."""
    with grpc.insecure_channel(url.removeprefix("grpc://"), options=options) as channel:
        yield Stub(channel)


def code_of(call: Callable[..., object], message: object, **options: object) -> grpc.StatusCode:
    try:
        call(message, timeout=20, **options)
    except grpc.RpcError as error:
        found: grpc.StatusCode = error.code()
        return found
    return grpc.StatusCode.OK


def infer_message(array: Array, model: str = "tiny") -> Any:
    message = pb.ModelInferRequest(model_name=model)
    message.inputs.add(name="x", datatype="FP32", shape=array.shape)
    message.raw_input_contents.append(array.tobytes())
    return message
