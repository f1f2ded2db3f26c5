"""What a request's header comes to: checked once, remembered, and its bytes left where they are."""

from __future__ import annotations

import numpy as np
import pytest

from serving.backends.onnxruntime.http.connection import _aligned
from serving.backends.onnxruntime.plan import Planner
from serving.backends.onnxruntime.shared_memory import SharedMemory
from serving.compression import BodyTooLargeError
from serving.models.config import ModelConfig, TensorSpec
from serving.protocol import (
    Array,
    InferHeader,
    ProtocolError,
    Tensor,
    TensorHeader,
    decode_response,
    encode_request,
)

FRAME = (3, 480, 640)


def planner(*, limit: int = 1 << 28, datatype: str = "FP32") -> Planner:
    inputs = (TensorSpec("x", datatype, (-1, -1, -1)),)
    outputs = (TensorSpec("y", datatype, (-1,)), TensorSpec("z", "INT64", (1,)))
    return Planner(ModelConfig("m", "onnxruntime", 4, inputs, outputs), 3, limit)


def received(array: Array) -> tuple[memoryview, int]:
    """A body as a connection receives it, and the length of its JSON part."""
    body, length = encode_request([Tensor.of("x", array)])
    assert length is not None
    memory = _aligned(len(body), length)
    memory[:] = body
    return memory, length


def test_a_frame_is_read_where_it_was_received_and_aligned() -> None:
    frame = np.random.default_rng(1).random((1, *FRAME), np.float32)
    assert frame.nbytes > 3.6e6
    body, length = received(frame)
    plans, shared = planner(), SharedMemory(1 << 30)
    array = plans.inputs(plans.plan(bytes(body[:length]), with_binary=True), body, length, shared)[
        "x"
    ]
    assert np.shares_memory(array, np.frombuffer(body, np.uint8))
    assert array.ctypes.data % 64 == 0
    np.testing.assert_array_equal(array, frame)


def test_a_header_that_comes_again_is_not_parsed_again() -> None:
    body, length = received(np.zeros((1, 2, 2, 2), np.float32))
    plans = planner()
    text = bytes(body[:length])
    assert plans.plan(text, with_binary=True) is plans.plan(text, with_binary=True)
    other = text.replace(b"[1,2,2,2]", b"[1,2,4,1]")
    assert plans.plan(other, with_binary=True).shapes != plans.plan(text, with_binary=True).shapes


def test_headers_of_other_transports_are_remembered_too() -> None:
    header = InferHeader((TensorHeader("x", "FP32", (1, 1, 1, 1), binary_size=4),))
    plans = planner()
    assert plans.plan_for(header) is plans.plan_for(header)


def test_what_is_remembered_is_bounded() -> None:
    plans = planner()
    for number in range(2_000):
        body, length = received(np.zeros((1, 1, 1, 1 + number), np.float32))
        plans.plan(bytes(body[:length]), with_binary=True)
    assert len(plans._plans) <= 256
    plan = plans.plan(bytes(body[:length]), with_binary=True)
    for number in range(2_000):
        outputs = {"y": np.zeros((1, number), np.float32), "z": np.zeros((1, 1), np.int64)}
        plans.reply(plan, outputs, SharedMemory(1 << 30))
    assert len(plan.replies) <= 256


@pytest.mark.parametrize("cut", [-4, 4])
def test_bytes_that_do_not_fit_are_told_with_both_counts(cut: int) -> None:
    body, length = received(np.zeros((1, 2, 2, 2), np.float32))
    wrong = bytes(body[:cut]) if cut < 0 else bytes(body) + b"\0" * cut
    plans = planner()
    plan = plans.plan(wrong[:length], with_binary=True)
    with pytest.raises(ProtocolError, match=rf"32 bytes, {32 + cut} came"):
        plans.inputs(plan, wrong, length, SharedMemory(1 << 30))


def test_a_tensor_of_too_many_values_is_refused_before_its_bytes_are_looked_at() -> None:
    body, length = received(np.zeros((1, 2, 2, 3), np.float32))
    with pytest.raises(BodyTooLargeError, match="limit of 8"):
        planner(limit=8).plan(bytes(body[:length]), with_binary=True)


def test_a_reply_is_what_a_client_reads_back() -> None:
    body, length = received(np.zeros((1, 1, 1, 1), np.float32))
    plans, shared = planner(), SharedMemory(1 << 30)
    plan = plans.plan(bytes(body[:length]), with_binary=True)
    for seed in (1, 2):
        y = np.random.default_rng(seed).random((2, 3), np.float32)
        lines, parts = plans.reply(plan, {"y": y, "z": np.full((2, 1), seed)}, shared)
        told = dict(line.split(": ") for line in lines.decode().strip().split("\r\n"))
        content = b"".join(parts)
        assert int(told["content-length"]) == len(content)
        found = decode_response(content, int(told["inference-header-content-length"]))
        np.testing.assert_array_equal(found["y"].array, y)
        assert found["z"].array.tolist() == [[seed], [seed]]
