"""Prepared requests, and how a reply is told right from wrong."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import orjson
import pytest
from tritonclient.grpc import service_pb2

from loadtest.payload import (
    Encoding,
    Payload,
    ReplyChecker,
    in_sequence,
    read_payloads,
    write_payloads,
)
from loadtest.prepare import payloads_from
from serving.errors import UsageError
from serving.models.repository import Model
from serving.parity import reference_for
from serving.protocol import InferRequest, Tensor, decode_request, encode_response

RIGHT = np.arange(10, dtype=np.float32).reshape(1, 10)
PAYLOAD = Payload(b"", None, {"y": Tensor.of("y", RIGHT)})


def reply(array: np.ndarray, name: str = "y", *, binary: bool = True) -> tuple[bytes, int | None]:
    request = InferRequest((), binary_default=binary)
    return encode_response("m", 1, request, [Tensor.of(name, array)])


def test_right_replies_are_right_the_first_time_and_the_hundredth() -> None:
    checker = ReplyChecker(PAYLOAD, values_every=10)
    assert all(checker.is_right(*reply(RIGHT)) for _ in range(100))
    assert ReplyChecker(PAYLOAD).is_right(*reply(RIGHT, binary=False))


@pytest.mark.parametrize("binary", [True, False])
@pytest.mark.parametrize(
    ("array", "name"),
    [
        (RIGHT, "z"),
        (RIGHT.astype(np.float64), "y"),
        (RIGHT.reshape(10, 1), "y"),
        (RIGHT[:, :9], "y"),
    ],
)
def test_name_datatype_and_shape_are_checked_on_every_reply(
    array: np.ndarray, name: str, binary: bool
) -> None:
    checker = ReplyChecker(PAYLOAD, values_every=0)
    assert not any(checker.is_right(*reply(array, name, binary=binary)) for _ in range(3))


def test_a_shortened_body_is_wrong_even_when_its_header_is_known() -> None:
    checker = ReplyChecker(PAYLOAD, values_every=0)
    body, length = reply(RIGHT)
    assert checker.is_right(body, length)
    assert not checker.is_right(body[:-4], length)
    assert not checker.is_right(b"", 0)
    assert not checker.is_right(b"not json", None)


def test_wrong_values_are_wrong_until_a_right_reply_described_itself() -> None:
    checker = ReplyChecker(PAYLOAD, values_every=5)
    assert not any(checker.is_right(*reply(RIGHT + 1)) for _ in range(10))
    assert checker.is_right(*reply(RIGHT))
    found = [checker.is_right(*reply(RIGHT + 1)) for _ in range(10)]
    assert found == [True, True, True, True, False] * 2
    assert all(checker.is_right(*reply(RIGHT)) for _ in range(10))


@pytest.mark.parametrize("encoding", ["binary", "json", "grpc"])
def test_payloads_survive_their_files(tiny: Model, tmp_path: Path, encoding: Encoding) -> None:
    reference = reference_for(tiny)
    written = payloads_from(tiny, reference, encoding=encoding)
    write_payloads(tmp_path, written)
    back = read_payloads(tmp_path)
    assert len(back) == len(reference.samples)
    for payload, first, answer in zip(back, written, reference.answers, strict=True):
        assert (payload.body, payload.headers) == (first.body, first.headers)
        np.testing.assert_array_equal(payload.expected["y"].array, answer["y"])


def test_a_request_carries_what_its_sample_holds(tiny: Model) -> None:
    reference = reference_for(tiny)
    for payload, sample in zip(payloads_from(tiny, reference), reference.samples, strict=True):
        sent = decode_request(payload.body, payload.header_length).inputs[0].array
        np.testing.assert_array_equal(sent, sample.inputs["x"])


@pytest.mark.parametrize("encoding", ["binary", "json"])
def test_a_sequence_tells_its_places_and_changes_nothing_else(
    tiny: Model, encoding: Encoding
) -> None:
    plain = payloads_from(tiny, reference_for(tiny), encoding=encoding)
    told = in_sequence(plain, 7)
    assert len(told) == len(plain) > 2
    for step, (payload, before) in enumerate(zip(told, plain, strict=True)):
        header = orjson.loads(payload.body[: payload.header_length])
        given = orjson.loads(before.body[: before.header_length]).get("parameters", {})
        assert header["parameters"] == {
            **given,
            "sequence_id": 7,
            "sequence_start": step == 0,
            "sequence_end": step == len(plain) - 1,
        }
        got, wanted = (decode_request(p.body, p.header_length) for p in (payload, before))
        assert got.binary_default == wanted.binary_default
        np.testing.assert_array_equal(got.inputs[0].array, wanted.inputs[0].array)


def test_a_sequence_over_grpc_tells_the_same(tiny: Model) -> None:
    plain = payloads_from(tiny, reference_for(tiny), encoding="grpc")
    first, *_, last = (
        service_pb2.ModelInferRequest.FromString(payload.body) for payload in in_sequence(plain, 7)
    )
    for message, start in ((first, True), (last, False)):
        assert message.parameters["sequence_id"].int64_param == 7
        assert message.parameters["sequence_start"].bool_param is start
        assert message.parameters["sequence_end"].bool_param is not start
    first.ClearField("parameters")
    assert first.SerializeToString() == plain[0].body


def test_a_batch_holds_a_sample_and_those_after_it(tiny: Model) -> None:
    reference = reference_for(tiny)
    payloads = payloads_from(tiny, reference, rows=3)
    sent = decode_request(payloads[-1].body, payloads[-1].header_length).inputs[0].array
    wanted = [reference.samples[i].inputs["x"][0] for i in (-1, 0, 1)]
    np.testing.assert_array_equal(sent, wanted)
    assert payloads[-1].expected["y"].array.shape == (3, 10)


def test_more_rows_than_the_model_takes_are_refused(tiny: Model) -> None:
    with pytest.raises(UsageError, match=r"9 rows .* \(8\)"):
        payloads_from(tiny, reference_for(tiny), rows=9)
