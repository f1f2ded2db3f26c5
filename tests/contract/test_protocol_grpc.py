"""What only gRPC has: streams, typed contents, and limits of the channel."""

from __future__ import annotations

import queue
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import grpc as rpc
import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as schema
from tritonclient.grpc import service_pb2_grpc as stubs
from tritonclient.utils import InferenceServerException

from tests.contract.clients import Client, answer_of
from tests.contract.extremes import EXTREMES
from tests.contract.served import Served

A = np.array([[1, 2, 3]], np.int32)
CLIENT_CODES = (rpc.StatusCode.INVALID_ARGUMENT, rpc.StatusCode.NOT_FOUND)


@contextmanager
def channel_to(served: Served, model: str) -> Iterator[Any]:
    """The service's own stub over a channel with gRPC's default limits."""
    address = urlsplit(served.server_of(model).address_for("grpc")).netloc
    with rpc.insecure_channel(address) as channel:
        yield stubs.GRPCInferenceServiceStub(channel)


def typed_request(**more: Any) -> schema.ModelInferRequest:
    """Numbers as numbers, where tritonclient sends raw bytes."""
    request = schema.ModelInferRequest(model_name="arithmetic", **more)
    for name in ("a", "b"):
        tensor = request.inputs.add(name=name, datatype="INT32", shape=[1, 3])
        tensor.contents.int_contents.extend([1, 2, 3])
    return request


def echo_request(length: int) -> schema.ModelInferRequest:
    request = schema.ModelInferRequest(model_name="echo", raw_input_contents=[bytes(4 * length)])
    request.inputs.add(name="x", datatype="FP32", shape=[length])
    return request


def test_asynchronous_calls(grpc: Client) -> None:
    arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
    inputs = [grpc.tensor("a", A), grpc.tensor("b", A)]
    with grpc.connect("arithmetic") as connection:
        for number in range(3):
            connection.async_infer(
                "arithmetic",
                inputs,
                request_id=str(number),
                callback=lambda result, error: arrived.put((result, error)),
            )
        replies = [arrived.get(timeout=20) for _ in range(3)]
    assert [error for _, error in replies] == [None] * 3
    assert {answer_of(result).id for result, _ in replies} == {"0", "1", "2"}
    for result, _ in replies:
        np.testing.assert_array_equal(result.as_numpy("sum"), A + A)


def test_a_stream_answers_each_request_and_outlives_a_fault(grpc: Client) -> None:
    arrived: queue.Queue[tuple[Any, Any]] = queue.Queue()
    with grpc.connect("arithmetic") as connection:
        connection.start_stream(lambda result, error: arrived.put((result, error)))
        for model in ("arithmetic", "nobody", "arithmetic"):
            inputs = [grpc.tensor("a", A), grpc.tensor("b", A)]
            connection.async_stream_infer(model, inputs, request_id=model)
        replies = [arrived.get(timeout=20) for _ in range(3)]
        connection.stop_stream()
    faults = [error for _, error in replies if error]
    assert len(faults) == 1
    assert "nobody" in str(faults[0])
    for result in (result for result, error in replies if not error):
        assert answer_of(result).id == "arithmetic"
        np.testing.assert_array_equal(result.as_numpy("sum"), A + A)


def test_typed_contents_are_answered_as_raw_ones(grpc: Client) -> None:
    with channel_to(grpc.served, "arithmetic") as stub:
        reply = stub.ModelInfer(typed_request(id="typed"))
    assert reply.id == "typed"
    names = [output.name for output in reply.outputs]
    raw = dict(zip(names, reply.raw_output_contents, strict=True))
    assert np.frombuffer(raw["sum"], np.int32).tolist() == [2, 4, 6]


def test_typed_contents_of_every_datatype(grpc: Client) -> None:
    fields = {"BOOL": "bool", "BYTES": "bytes", "FP32": "fp32", "FP64": "fp64"}
    fields |= {"INT64": "int64", "UINT64": "uint64"}
    request = schema.ModelInferRequest(model_name="datatypes")
    for name, array in EXTREMES.items():
        datatype = name.removeprefix("x_").upper()
        tensor = request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        field = fields.get(datatype, "uint" if datatype.startswith("UINT") else "int")
        getattr(tensor.contents, f"{field}_contents").extend(array.ravel().tolist())
    with channel_to(grpc.served, "datatypes") as stub:
        reply = stub.ModelInfer(request)
    for output, raw in zip(reply.outputs, reply.raw_output_contents, strict=True):
        given = EXTREMES[output.name.replace("y_", "x_")]
        wanted = given.tobytes()
        if output.datatype == "BYTES":
            wanted = b"".join(len(e).to_bytes(4, "little") + e for e in given.ravel())
        assert raw == wanted, output.name


def spoil(request: schema.ModelInferRequest, fault: str) -> None:
    first = request.inputs[0]
    if fault == "too few values":
        del first.contents.int_contents[-1]
    elif fault == "values of another field":
        first.contents.ClearField("int_contents")
        first.contents.fp32_contents.extend([1, 2, 3])
    elif fault == "no contents":
        first.ClearField("contents")
    elif fault == "raw beside typed":
        request.raw_input_contents.extend([A.tobytes(), A.tobytes()])
    elif fault == "one raw for two inputs":
        for tensor in request.inputs:
            tensor.ClearField("contents")
        request.raw_input_contents.append(A.tobytes())


@pytest.mark.parametrize(
    "fault",
    [
        "too few values",
        "values of another field",
        "no contents",
        "raw beside typed",
        "one raw for two inputs",
    ],
)
def test_contents_that_do_not_fit(grpc: Client, fault: str) -> None:
    request = typed_request()
    spoil(request, fault)
    with channel_to(grpc.served, "arithmetic") as stub:
        with pytest.raises(rpc.RpcError) as caught:
            stub.ModelInfer(request)
        assert caught.value.code() in CLIENT_CODES
        assert stub.ModelInfer(typed_request()).outputs


def test_a_large_reply_over_a_default_channel_is_exhausted_not_lost(grpc: Client) -> None:
    """The request goes through; it is the client that stops at 4 MiB."""
    with channel_to(grpc.served, "echo") as stub:
        with pytest.raises(rpc.RpcError) as caught:
            stub.ModelInfer(echo_request(1_600_000))
        assert caught.value.code() is rpc.StatusCode.RESOURCE_EXHAUSTED
        assert "4194304" in caught.value.details()
        assert stub.ModelInfer(echo_request(2)).raw_output_contents == [bytes(8)]


def test_faults_come_with_a_code_and_a_reason(grpc: Client) -> None:
    with pytest.raises(InferenceServerException) as caught:
        grpc.infer("arithmetic", {"a": A})
    assert "b" in caught.value.message()
    assert caught.value.status() == "StatusCode.INVALID_ARGUMENT"
    with pytest.raises(InferenceServerException) as caught:
        grpc.infer("nobody", {"a": A})
    assert "nobody" in caught.value.message()
    assert caught.value.status() == "StatusCode.NOT_FOUND"
