"""Inference through each of NVIDIA's clients: every datatype and shape, and the client's faults."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

from serving.protocol import Array
from serving.session import open_session
from tests.contract.clients import Client, answer_of
from tests.contract.differences import Outcome
from tests.contract.extremes import EXTREMES, NOTHING, assert_same_bits, half_bits

A = np.array([[1, -2, 3]], np.int32)
B = np.array([[10, 20, -30]], np.int32)
ROW = np.array([[1, -2, 3, -4]], np.float32)


def expect_sum(client: Client) -> None:
    answer = client.infer("arithmetic", {"a": A, "b": B})
    np.testing.assert_array_equal(answer.outputs["sum"], A + B)


@pytest.mark.parametrize("version", ["", "1"])
def test_the_answer_is_the_sessions_and_says_who_gave_it(client: Client, version: str) -> None:
    x = np.random.default_rng(3).standard_normal((3, 64)).astype(np.float32)
    answer = client.infer("tiny", {"x": x}, model_version=version, request_id="trace-7/ä")
    right = open_session(client.served.models["tiny"]).run({"x": x})["y"]
    np.testing.assert_allclose(answer.outputs["y"], right, atol=1e-6)
    assert (answer.id, answer.model_name, answer.model_version) == ("trace-7/ä", "tiny", "1")


def test_a_request_without_an_id_gets_none(client: Client) -> None:
    assert client.infer("arithmetic", {"a": A, "b": B}).id == ""


def test_several_inputs_and_outputs_in_any_order(client: Client) -> None:
    for inputs in ({"a": A, "b": B}, {"b": B, "a": A}):
        outputs = client.infer("arithmetic", inputs).outputs
        assert set(outputs) == {"sum", "difference"}
        np.testing.assert_array_equal(outputs["sum"], A + B)
        np.testing.assert_array_equal(outputs["difference"], A - B)


@pytest.mark.parametrize("names", [["sum"], ["difference"], ["difference", "sum"]])
def test_only_the_outputs_that_were_asked_for(client: Client, names: list[str]) -> None:
    outputs = client.infer("arithmetic", {"a": A, "b": B}, outputs=names).outputs
    assert set(outputs) == set(names)
    for name in names:
        np.testing.assert_array_equal(outputs[name], A + B if name == "sum" else A - B)


def test_every_datatype_comes_back_bit_for_bit(client: Client) -> None:
    outputs = client.infer("datatypes", EXTREMES).outputs
    for name, array in EXTREMES.items():
        assert_same_bits(outputs[name.replace("x_", "y_")], array)


def test_empty_tensors_of_every_datatype(client: Client) -> None:
    outputs = client.infer("datatypes", NOTHING).outputs
    for name, array in NOTHING.items():
        assert array.shape == (0, 2)
        assert_same_bits(outputs[name.replace("x_", "y_")], array)


@pytest.mark.parametrize("rows", [1, 8])
def test_sixteen_bit_floats_come_back_bit_for_bit(client: Client, rows: int) -> None:
    inputs = half_bits(rows)
    outputs = client.infer("halves", inputs).outputs
    for name, array in inputs.items():
        assert_same_bits(outputs[name.replace("x_", "y_")], array)


def test_an_input_of_rank_0_travels_as_one_of_one_element(client: Client) -> None:
    for rows in (1, 3):
        x = np.tile(ROW, (rows, 1))
        outputs = client.infer("gain", {"x": x, "gain": np.array([2.5], np.float32)}).outputs
        np.testing.assert_array_equal(outputs["y"], x * 2.5)


def test_a_model_of_one_row_answers_one_row_and_refuses_two(client: Client) -> None:
    np.testing.assert_array_equal(
        client.infer("fixed", {"x": ROW}).outputs["y"], np.maximum(ROW, 0)
    )
    two = np.tile(ROW, (2, 1))
    assert client.outcome(lambda: client.infer("fixed", {"x": two})) is Outcome.CLIENT_FAULT


def test_nan_and_infinity_are_exact_in_binary(client: Client) -> None:
    answer = client.infer("logarithm", {"x": np.array([[-1, 0, 1]], np.float32)})
    np.testing.assert_array_equal(answer.outputs["y"], [[np.nan, -np.inf, 0]])


def test_a_tensor_above_the_default_limit_of_grpc(client: Client) -> None:
    """6.4 MB each way; gRPC's own default takes 4 MiB."""
    large = np.arange(1_600_000, dtype=np.float32)
    assert_same_bits(client.infer("echo", {"x": large}).outputs["y"], large)


@pytest.mark.parametrize(
    ("inputs", "named"),
    [
        ({"a": A}, {}),
        ({"a": A, "b": B, "c": B}, {}),
        ({"a": A.astype(np.int64), "b": B}, {}),
        ({"a": A[:, :2], "b": B}, {}),
        ({"a": A[0], "b": B[0]}, {}),
        ({"a": np.tile(A, (2, 1)), "b": B}, {}),
        ({"a": np.tile(A, (9, 1)), "b": np.tile(B, (9, 1))}, {}),
        ({"a": A[:0], "b": B[:0]}, {}),
        ({"a": A, "b": B}, {"outputs": ["sum", "product"]}),
        ({"a": A, "b": B}, {"model_version": "2"}),
        ({"a": A, "b": B}, {"model_version": "one"}),
    ],
    ids=[
        *("input missing", "input unexpected", "datatype", "shape", "rank", "rows differ"),
        *("too many rows", "no rows", "output unexpected", "version unknown", "version no number"),
    ],
)
def test_what_does_not_fit_is_the_clients_fault_and_the_next_answer_right(
    client: Client, inputs: Mapping[str, Array], named: Mapping[str, object]
) -> None:
    outcome = client.outcome(lambda: client.infer("arithmetic", inputs, **named))
    assert outcome is Outcome.CLIENT_FAULT
    expect_sum(client)


@pytest.mark.parametrize("gain", [np.float32(2), np.array([2, 2], np.float32)])
def test_a_gain_of_another_shape_than_one_element(client: Client, gain: Array) -> None:
    inputs = {"x": ROW, "gain": np.asarray(gain)}
    assert client.outcome(lambda: client.infer("gain", inputs)) is Outcome.CLIENT_FAULT


def test_text_that_is_not_utf_8(client: Client) -> None:
    """ONNX Runtime's strings are UTF-8; other bytes are refused, not mangled."""
    odd = np.array([[b"\xff", b""]], np.object_)
    inputs = {**NOTHING, "x_bytes": odd}
    assert client.outcome(lambda: client.infer("datatypes", inputs)) is Outcome.CLIENT_FAULT


def test_an_unknown_model_is_the_clients_fault(client: Client) -> None:
    for model in ("nobody", "arithmetic/../tiny", "Arithmetic"):
        outcome = client.outcome(lambda name=model: client.infer(name, {"a": A, "b": B}))
        assert outcome is Outcome.CLIENT_FAULT


def test_asynchronous_calls_of_the_blocking_http_client(http: Client) -> None:
    inputs = [http.tensor("a", A), http.tensor("b", B)]
    with http.connect("arithmetic") as connection:
        requests = [
            connection.async_infer("arithmetic", inputs, request_id=str(n)) for n in range(3)
        ]
        results = [request.get_result() for request in requests]
    assert [answer_of(result).id for result in results] == ["0", "1", "2"]
    for result in results:
        np.testing.assert_array_equal(result.as_numpy("sum"), A + B)
