"""The codec against the protocol's edges; the examples are what real servers got wrong."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from serving.protocol import (
    NUMPY_TYPES,
    InferRequest,
    OutputRequest,
    ProtocolError,
    Tensor,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    parse_header_length,
)

NUMERIC = [name for name in NUMPY_TYPES if name not in ("BYTES", "BF16")]


def request(items: list[dict[str, Any]], blob: bytes = b"") -> tuple[bytes, int]:
    header = orjson.dumps({"inputs": items})
    return header + blob, len(header)


def fp32(size: object, shape: object = (1, 4)) -> dict[str, Any]:
    return {
        "name": "x",
        "datatype": "FP32",
        "shape": list(shape) if isinstance(shape, tuple) else shape,
        "parameters": {"binary_data_size": size},
    }


def bytes_item(shape: list[int], **more: Any) -> dict[str, Any]:
    return {"name": "s", "datatype": "BYTES", "shape": shape, **more}


@given(st.data(), st.sampled_from(NUMERIC), st.booleans())
def test_numbers_survive_the_round_trip(data: st.DataObject, datatype: str, binary: bool) -> None:
    if not binary and datatype == "FP16":
        return
    dtype = np.dtype(NUMPY_TYPES[datatype])
    elements = {"allow_nan": False, "allow_infinity": False} if dtype.kind == "f" else {}
    shape = arrays.array_shapes(max_dims=3, max_side=4, min_side=0)
    array = data.draw(arrays.arrays(dtype, shape, elements=elements))
    body, length = encode_request([Tensor("x", datatype, array)], binary=binary)
    back = decode_request(body, length).inputs[0].array
    assert back.dtype == array.dtype
    np.testing.assert_array_equal(back, array)
    answer, length = encode_response(
        "m", 1, InferRequest((), binary_default=binary), [Tensor("y", datatype, array)]
    )
    np.testing.assert_array_equal(decode_response(answer, length)["y"].array, array)


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=5))
def test_bytes_survive_the_round_trip(elements: list[bytes]) -> None:
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    body, length = encode_request([Tensor("s", "BYTES", array)])
    assert decode_request(body, length).inputs[0].array.tolist() == elements


def test_several_tensors_keep_their_bytes_apart() -> None:
    tensors = [Tensor.of(name, np.arange(n, dtype=np.float32)) for n, name in enumerate("abc", 1)]
    body, length = encode_request(tensors)
    back = decode_request(body, length).inputs
    assert [t.array.tolist() for t in back] == [t.array.tolist() for t in tensors]


@pytest.mark.parametrize(
    ("item", "blob"),
    [
        (fp32(12), bytes(12)),
        (fp32(20), bytes(20)),
        (fp32(16), bytes(12)),
        (fp32(16), bytes(17)),
        (fp32(-1), bytes(16)),
        (fp32("16"), bytes(16)),
        (fp32(True), bytes(16)),
        (fp32(16, None), bytes(16)),
        (fp32(16, (-1, 4)), bytes(16)),
        ({**fp32(16), "datatype": "FP33"}, bytes(16)),
        ({**fp32(16), "name": 3}, bytes(16)),
        ({**fp32(16), "data": [0.0] * 4}, bytes(16)),
        ({**fp32(4, (1,) * 100)}, bytes(4)),
        ({**fp32(0, (0, 2**62, 2**62))}, b""),
    ],
)
def test_binary_faults_are_told(item: dict[str, Any], blob: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request(*request([item], blob))


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"inputs": 3}', b'{"inputs": []}', b"\xff"])
def test_bodies_that_are_no_request(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        decode_request(body, None)


@pytest.mark.parametrize("text", ["x", "-1", "1.0", "", "²", "9" * 5000])
def test_header_length_must_be_a_number(text: str) -> None:
    with pytest.raises(ProtocolError):
        parse_header_length(text)


def test_header_length_beyond_the_body() -> None:
    body, length = request([fp32(16)], bytes(16))
    with pytest.raises(ProtocolError, match="has"):
        decode_request(body, len(body) + 1)
    with pytest.raises(ProtocolError, match="not JSON"):
        decode_request(body, len(body))
    assert decode_request(body, length).inputs[0].array.shape == (1, 4)


def test_binary_data_without_the_header_is_told_which_one() -> None:
    body, _ = request([fp32(16)], bytes(range(16)))
    with pytest.raises(ProtocolError, match="Inference-Header-Content-Length must state"):
        decode_request(body, None)


@pytest.mark.parametrize(("size", "sent"), [(12, 12), (20, 20), (16, 12), (16, 20)])
def test_a_wrong_byte_count_is_told_with_both_numbers(size: int, sent: int) -> None:
    told = {(12, 12): "16 bytes, got 12", (20, 20): "16 bytes, got 20"}
    told |= {(16, 12): "is 16 but 12 bytes are left", (16, 20): "4 bytes follow the last input"}
    with pytest.raises(ProtocolError, match=told[size, sent]):
        decode_request(*request([fp32(size)], bytes(sent)))


def test_nesting_that_no_recursion_would_survive_is_refused() -> None:
    body, _ = request([{"name": "x", "datatype": "FP32", "shape": [1], "data": "here"}])
    body = body.replace(b'"here"', b"[" * 1000 + b"1" + b"]" * 1000)
    with pytest.raises(ProtocolError, match="nested deeper"):
        decode_request(body, None)


def test_nested_and_flat_numbers_follow_the_shape_not_the_nesting() -> None:
    for data in ([1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]], [[1, 2], [3, 4], [5, 6]]):
        body, _ = request([{"name": "x", "datatype": "INT32", "shape": [2, 3], "data": data}])
        assert decode_request(body, None).inputs[0].array.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_output_data_is_flat_and_row_major() -> None:
    array = np.arange(6, dtype=np.int64).reshape(3, 2).T
    body, length = encode_response("m", 1, InferRequest(()), [Tensor.of("y", array)])
    assert length is None
    assert orjson.loads(body)["outputs"][0]["data"] == [0, 2, 4, 1, 3, 5]


def test_half_precision_travels_as_binary_only() -> None:
    tensor = Tensor.of("x", np.array([[1.5, -0.0]], np.float16))
    body, length = encode_request([tensor])
    assert decode_request(body, length).inputs[0].array.tobytes() == tensor.array.tobytes()
    with pytest.raises(ProtocolError, match="binary"):
        encode_request([tensor], binary=False)
    with pytest.raises(ProtocolError, match="binary"):
        encode_response("m", 1, InferRequest(()), [tensor])


def test_single_precision_survives_json_exactly() -> None:
    # Its shortest text, 7.038531e-26, is another number when read as a double first.
    array = np.array([7.038531e-26, 0.1, 1 / 3], np.float32)
    body, _ = encode_request([Tensor.of("x", array)], binary=False)
    np.testing.assert_array_equal(decode_request(body, None).inputs[0].array, array)


@pytest.mark.parametrize(
    "more",
    [
        {"id": 5},
        {"outputs": [{"name": "y", "parameters": {"classification": 3}}]},
        {"outputs": [{"name": "y", "parameters": {"shared_memory_region": "r"}}]},
        {"outputs": [{}]},
        {"parameters": "binary"},
    ],
)
def test_what_cannot_be_honoured_is_refused_not_ignored(more: dict[str, Any]) -> None:
    item = {"name": "x", "datatype": "FP32", "shape": [1], "data": [1.0]}
    body = orjson.dumps({"inputs": [item], **more})
    with pytest.raises(ProtocolError):
        decode_request(body, None)


def test_text_is_counted_in_bytes() -> None:
    array = np.array([["ä", ""], ["b", "cc"]], np.object_)
    body, length = encode_request([Tensor("s", "BYTES", array)])
    assert len(body) - (length or 0) == 21
    assert decode_request(body, length).inputs[0].array.tolist() == [
        ["ä".encode(), b""],
        [b"b", b"cc"],
    ]


def test_text_without_its_length_prefix() -> None:
    for blob in (b"ab", b"\x05\0\0\0ab", b"\0\0\0\0"):
        item = bytes_item([2], parameters={"binary_data_size": len(blob)})
        with pytest.raises(ProtocolError):
            decode_request(*request([item], blob))


def test_flat_and_nested_lists_are_the_same() -> None:
    for data in (["a", "b"], [["a"], ["b"]]):
        body, _ = request([bytes_item([2, 1], data=data)])
        assert decode_request(body, None).inputs[0].array.tolist() == [[b"a"], [b"b"]]


@pytest.mark.parametrize(
    "item",
    [
        {"datatype": "FP16", "data": [1.0]},
        {"datatype": "FP32", "data": [1.0, 2.0]},
        {"datatype": "FP32", "data": ["1"]},
        {"datatype": "FP32", "data": [None]},
        {"datatype": "INT8", "data": [300]},
        {"datatype": "INT8", "data": [1.5]},
        {"datatype": "INT8", "data": [True]},
        {"datatype": "UINT8", "data": [-1]},
        {"datatype": "BOOL", "data": [1]},
        {"datatype": "BYTES", "data": [1]},
        {"datatype": "FP32"},
        {"datatype": "BF16", "data": [1.0]},
        {"datatype": "FP32", "data": [1e300]},
        {"datatype": "FP32", "data": [[1.0]]},
        {"datatype": "INT64", "data": [2**63]},
        {"datatype": "UINT64", "data": [2.0**64]},
    ],
)
def test_json_values_that_do_not_fit(item: dict[str, Any]) -> None:
    body, _ = request([{"name": "x", "shape": [1], **item}])
    with pytest.raises(ProtocolError, match="x"):
        decode_request(body, None)


def test_json_has_no_word_for_nan() -> None:
    tensor = Tensor.of("y", np.array([np.nan, np.inf], np.float32))
    with pytest.raises(ProtocolError, match="binary"):
        encode_response("m", 1, InferRequest(()), [tensor])
    body, length = encode_response("m", 1, InferRequest((), binary_default=True), [tensor])
    np.testing.assert_array_equal(decode_response(body, length)["y"].array, tensor.array)


def test_only_the_outputs_asked_for_each_in_its_own_encoding() -> None:
    tensors = [Tensor.of(name, np.ones((2, 3), np.float32)) for name in "abc"]
    wanted = InferRequest(
        (), id="7", outputs=(OutputRequest("c", binary=True), OutputRequest("a", binary=False))
    )
    body, length = encode_response("m", 3, wanted, tensors)
    header = orjson.loads(body[:length])
    assert [item["name"] for item in header["outputs"]] == ["c", "a"]
    assert header["outputs"][1]["data"] == [1.0] * 6
    assert (header["id"], header["model_version"]) == ("7", "3")
    with pytest.raises(ProtocolError, match="'z'"):
        encode_response(
            "m", 1, InferRequest((), outputs=(OutputRequest("z", binary=True),)), tensors
        )
