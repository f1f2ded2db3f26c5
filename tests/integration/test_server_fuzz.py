"""Requests that nobody would write, against one server over kept connections.

Whatever comes: no 5xx for a client's fault, always a reason, no growth of memory, and the next good
request is answered right.
"""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlsplit

import grpc
import numpy as np
import pytest
import schemathesis
from google.protobuf.message import DecodeError
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from onnx import helper
from schemathesis import GenerationMode, checks
from tritonclient.grpc import service_pb2 as pb

from serving.backends.onnxruntime.routes import ENDPOINTS, Endpoint
from serving.protocol import HEADER_LENGTH, NUMPY_TYPES, decode_response
from tests.grpc_calls import code_of, infer_message, stub_of
from tests.http_wire import split_replies
from tests.mutations import Draft, drafts, mutants, texts
from tests.raw_http import dial, infer_request, receive_all
from tests.sample_models import Port, write_arithmetic, write_model, write_tiny
from tests.server_process import Server, serve

GROWTH_BOUND = 4 << 20
"""A round of hundreds of requests has been seen to add 30 to 130 KB."""
A, B = np.array([[1, 2, 3]], np.int32), np.array([[4, 5, 6]], np.int32)
GOOD = Draft(
    "arithmetic",
    {
        "inputs": [
            {"name": "a", "datatype": "INT32", "shape": [1, 3], "data": [1, 2, 3]},
            {"name": "b", "datatype": "INT32", "shape": [1, 3], "data": [4, 5, 6]},
        ]
    },
)


def fuzz(examples: int) -> Callable[[Any], Any]:
    """The same cases in every run: a failure comes from the change, not from the day.

    Cases are not shrunk: each one leaves the server as it was, which is what is tested.
    """
    return settings(
        max_examples=examples,
        derandomize=True,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("fuzz")
    repository = folder / "repository"
    write_arithmetic(repository)
    write_model(
        *(repository, "text", [helper.make_node("Identity", ["x"], ["y"])]),
        *([Port("x", "BYTES", (-1,))], [Port("y", "BYTES", (-1,))]),
    )
    model = write_tiny(repository)
    with serve(model, folder, "--model", "arithmetic", "--model", "text") as running:
        yield running
        assert running.worker.is_running()
        assert running.metric('infersweep_requests_total{model="arithmetic",outcome="ok"') > 0
        faults = [line for line in metrics(running) if 'outcome="server_fault"' in line]
        assert faults
        assert all(line.endswith(" 0.0") for line in faults), faults


def metrics(server: Server) -> list[str]:
    return server.send("GET", "/metrics")[1].decode().splitlines()


class Kept:
    """One connection, made again only when the server has said goodbye."""

    def __init__(self, server: Server) -> None:
        self._connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=20)

    def post(self, draft: Draft) -> tuple[int, bytes, http.client.HTTPMessage]:
        path, body, fields = draft.wire()
        self._connection.request("POST", path, body, fields)
        reply = self._connection.getresponse()
        return reply.status, reply.read(), reply.headers

    def close(self) -> None:
        self._connection.close()


@pytest.fixture(scope="module")
def kept(server: Server) -> Iterator[Kept]:
    connection = Kept(server)
    yield connection
    connection.close()


def expect_told(status: int, body: bytes, headers: http.client.HTTPMessage) -> None:
    """An answer that can be read, or a reason; 503 only for a timeout of the request's own."""
    if status == 200:
        length = headers.get(HEADER_LENGTH)
        decode_response(body, int(length) if length else None)
        return
    reason = json.loads(body)["error"]
    assert reason
    assert headers["content-type"] == "application/json"
    assert 400 <= status < 500 or (status == 503 and "waited" in reason), (status, reason)


def expect_sum(kept: Kept) -> None:
    status, body, _ = kept.post(GOOD)
    assert status == 200, body
    outputs = {one["name"]: one["data"] for one in json.loads(body)["outputs"]}
    assert outputs == {"sum": [5, 7, 9], "difference": [-3, -3, -3]}


def values_of(draft: Draft) -> dict[str, Any]:
    """The inputs of a valid request."""
    found, blob = {}, draft.blob
    for tensor in draft.header["inputs"]:
        if "data" in tensor:
            array = np.array(tensor["data"], np.int32)
        else:
            size = tensor["parameters"]["binary_data_size"]
            array, blob = np.frombuffer(blob[:size], np.int32), blob[size:]
        found[tensor["name"]] = array.reshape(tensor["shape"])
    return found


@fuzz(150)
@given(draft=drafts())
def test_valid_requests_in_every_form_are_answered_right(kept: Kept, draft: Draft) -> None:
    status, body, headers = kept.post(draft)
    assert status == 200, body
    length = headers.get(HEADER_LENGTH)
    outputs = decode_response(body, int(length) if length else None)
    given_values = values_of(draft)
    a, b = given_values["a"], given_values["b"]
    np.testing.assert_array_equal(outputs["sum"].array, a + b)
    np.testing.assert_array_equal(outputs["difference"].array, a - b)


@fuzz(50)
@given(draft=texts())
def test_text_comes_back_as_it_went(kept: Kept, draft: Draft) -> None:
    """``text`` gives back what it gets; asked twice, as JSON and as binary data."""
    seen = []
    for binary in (True, False):
        draft.header["outputs"] = [{"name": "y", "parameters": {"binary_data": binary}}]
        status, body, headers = kept.post(draft)
        assert status == 200, body
        length = headers.get(HEADER_LENGTH)
        seen.append(decode_response(body, int(length) if length else None)["y"].array.tolist())
    told = draft.header["inputs"][0].get("data", [value.decode() for value in seen[0]])
    assert seen == [[value.encode() for value in told]] * 2
    assert len(told) == draft.header["inputs"][0]["shape"][0]


def grows(server: Server, round_of_requests: Callable[[], None]) -> int:
    """Bytes by which memory grows in a round that follows an equal one."""
    round_of_requests()
    before = server.worker.memory_info().rss
    round_of_requests()
    after: int = server.worker.memory_info().rss
    return after - before


def test_mutated_requests_are_told_why_and_leave_no_trace(server: Server, kept: Kept) -> None:
    @fuzz(500)
    @given(draft=mutants())
    def one_round(draft: Draft) -> None:
        expect_told(*kept.post(draft))
        expect_sum(kept)

    assert grows(server, one_round) < GROWTH_BOUND


EDITS = st.lists(
    st.tuples(
        st.integers(0, 500), st.integers(0, 4), st.one_of(st.binary(max_size=4), st.just(b"\r\n"))
    ),
    min_size=1,
    max_size=5,
)
WIRES = (
    infer_request(np.ones((1, 64), np.float32)),
    infer_request(np.ones((1, 64), np.float32), chunk_bytes=50),
)


def test_any_bytes_end_in_a_reason_or_in_silence(server: Server, kept: Kept) -> None:
    """Raw requests with edited bytes; the client ends its side, so that nothing waits for more."""

    @fuzz(200)
    @given(wire=st.sampled_from(WIRES), edits=EDITS)
    def one_round(wire: bytes, edits: list[tuple[int, int, bytes]]) -> None:
        for at, length, snippet in edits:
            wire = wire[:at] + snippet + wire[at + length :]
        with dial(server) as client:
            client.sendall(wire)
            client.shutdown(socket.SHUT_WR)
            for answer in split_replies(receive_all(client)):
                assert answer.status < 500 or answer.status in (501, 505), answer
                assert answer.status < 400 or json.loads(answer.body)["error"]
        expect_sum(kept)

    assert grows(server, one_round) < GROWTH_BOUND


@st.composite
def messages(draw: st.DrawFn) -> bytes:
    """A ``ModelInferRequest`` after some mutations, of its fields or of its bytes."""
    message = infer_message(np.ones((1, 64), np.float32))
    (tensor,) = message.inputs
    numbers = st.sampled_from([-(2**63), -1, 0, 1, 63, 64, 2**31, 2**62, 2**63 - 1])
    for kind in draw(st.lists(st.integers(0, 7), min_size=1, max_size=3)):
        if kind == 0:
            tensor.shape[:] = draw(st.lists(numbers, max_size=4)) * draw(st.sampled_from([1, 100]))
        elif kind == 1:
            tensor.datatype = draw(st.sampled_from([*NUMPY_TYPES, "", "X"]))
        elif kind == 2:
            message.raw_input_contents[:] = draw(st.lists(st.binary(max_size=300), max_size=2))
        elif kind == 3:
            tensor.contents.fp32_contents.extend([1.0] * draw(st.integers(0, 65)))
        elif kind == 4:
            tensor.contents.int64_contents.append(draw(numbers))
        elif kind == 5:
            tensor.parameters["shared_memory_region"].string_param = draw(st.text(max_size=5))
            tensor.parameters["shared_memory_byte_size"].int64_param = draw(numbers)
        elif kind == 6:
            message.model_name = draw(st.sampled_from(["", "../tiny", "datatypes", "x" * 20_000]))
        else:
            message.outputs.add(name=draw(st.sampled_from(["y", "z", ""])))
    wire: bytes = message.SerializeToString()
    if draw(st.booleans()):
        at, snippet = draw(st.integers(0, len(wire))), draw(st.binary(max_size=3))
        wire = wire[:at] + snippet + wire[at + 1 :]
    return wire


CLIENT_FAULTS = {grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.NOT_FOUND}


def parses(wire: bytes) -> bool:
    try:
        pb.ModelInferRequest.FromString(wire)
    except DecodeError:
        return False
    return True


def test_mutated_messages_are_the_clients_fault(server: Server) -> None:
    """What is no message at all is ``INTERNAL`` by gRPC's own rule (statuscodes.md)."""
    good = infer_message(np.ones((1, 64), np.float32)).SerializeToString()
    with grpc.insecure_channel(server.grpc_url.removeprefix("grpc://")) as channel:
        send = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")

        @fuzz(250)
        @given(wire=messages())
        def one_round(wire: bytes) -> None:
            allowed = CLIENT_FAULTS if parses(wire) else {grpc.StatusCode.INTERNAL}
            assert code_of(send, wire) in {grpc.StatusCode.OK, *allowed}
            reply = pb.ModelInferResponse.FromString(send(good, timeout=20))
            assert reply.outputs[0].shape == [1, 10]

        assert grows(server, one_round) < GROWTH_BOUND


def test_a_shape_of_countless_lengths_is_refused_at_once(server: Server, kept: Kept) -> None:
    """Their product has millions of digits; reckoned with, it would take minutes."""
    shape = [2**62] * 90_000
    tensor = {"name": "x", "datatype": "BYTES", "shape": shape, "data": []}
    status, body, _ = kept.post(Draft("text", {"inputs": [tensor]}))
    assert (status, len(body) < 10_000) == (400, True)
    message = infer_message(np.ones((1, 64), np.float32))
    message.inputs[0].shape[:] = shape
    with stub_of(server.grpc_url) as stub:
        assert code_of(stub.ModelInfer, message) is grpc.StatusCode.INVALID_ARGUMENT


CHECKS = [
    checks.not_a_server_error,
    *(checks.status_code_conformance, checks.content_type_conformance),
    *(checks.response_schema_conformance, checks.response_headers_conformance),
]
SERVED = {"model": "arithmetic", "version": "1"}
NAMELESS = ("load", "unload", "openapi")
"""Other tests need the model that is served."""


@pytest.fixture(scope="module")
def interface(server: Server) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


@pytest.mark.parametrize("endpoint", ENDPOINTS, ids=lambda one: f"{one.method} {one.template}")
def test_every_operation_keeps_what_the_interface_promises(
    interface: Any, kept: Kept, endpoint: Endpoint
) -> None:
    """Requests that fit the interface and requests that do not, under any name and served ones."""
    operation = interface[endpoint.template][endpoint.method]
    names = [None] if endpoint.operation in NAMELESS else [None, SERVED]
    cases = [
        operation.as_strategy(mode, path_parameters=known)
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
        for known in names
    ]

    @fuzz(20)
    @given(case=st.one_of(cases))
    def one_round(case: schemathesis.Case) -> None:
        case.call_and_validate(checks=CHECKS)

    one_round()
    expect_sum(kept)
