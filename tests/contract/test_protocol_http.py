"""What only HTTP has: JSON beside binary data, text in both, and what JSON has no word for."""

from __future__ import annotations

import itertools
import json
import math
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from tests.contract.clients import Client
from tests.contract.differences import Outcome
from tests.contract.extremes import EXTREMES, NOTHING, assert_same_bits, finite, half_bits
from tests.contract.faults import HEADER_LENGTH, A
from tests.contract.served import Reply, Served

MIXES = {"none": [], "all": [*EXTREMES], "every other": [*EXTREMES][::2]}
TEXT = ["ä", "", "b", "cc"]


def as_outputs(names: Sequence[str]) -> list[str]:
    return [name.replace("x_", "y_") for name in names]


def post(served: Served, model: str, *inputs: Mapping[str, Any], **more: Any) -> Reply:
    (reply,) = served.post(model, (json.dumps({"inputs": inputs, **more}).encode(), {}))
    return reply


def post_text(served: Served, *, raw: bytes = b"", **fields: Any) -> Reply:
    """BYTES of shape [2, 2] to model ``datatypes``, whose other inputs are empty."""
    others = [
        {
            "name": name,
            "datatype": name.removeprefix("x_").upper(),
            "shape": [0, 2],
            "parameters": {"binary_data_size": 0},
        }
        for name in EXTREMES
        if name != "x_bytes"
    ]
    if raw:
        fields = {"parameters": {"binary_data_size": len(raw)}}
    text = {"name": "x_bytes", "datatype": "BYTES", "shape": [2, 2], **fields}
    head = json.dumps({"inputs": [*others, text], "outputs": [{"name": "y_bytes"}]}).encode()
    (reply,) = served.post("datatypes", (head + raw, {HEADER_LENGTH: str(len(head))}))
    return reply


def prefixed(*elements: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(element)) + element for element in elements)


@pytest.mark.parametrize(("json_in", "json_out"), [*itertools.product(MIXES, MIXES)])
def test_json_and_binary_in_any_mix(http: Client, json_in: str, json_out: str) -> None:
    all_binary = (json_in, json_out) == ("none", "none")
    for given in (EXTREMES if all_binary else finite(EXTREMES), NOTHING):
        answer = http.infer(
            "datatypes",
            given,
            outputs=as_outputs([*given]),
            json_inputs=MIXES[json_in],
            json_outputs=as_outputs(MIXES[json_out]),
        )
        for name, array in given.items():
            assert_same_bits(answer.outputs[name.replace("x_", "y_")], array)


@pytest.mark.parametrize(
    "data", [[1, 2, 3, 4, 5, 6], [[1, 2, 3], [4, 5, 6]], [[1, 2], [3, 4], [5, 6]]], ids=str
)
def test_data_is_row_major_and_comes_back_flat(served: Served, data: Sequence[object]) -> None:
    a = {**A, "shape": [2, 3], "data": data}
    outputs = post(served, "arithmetic", a, {**a, "name": "b"}).json["outputs"]
    assert {output["name"]: output["data"] for output in outputs} == {
        "sum": [2, 4, 6, 8, 10, 12],
        "difference": [0] * 6,
    }
    for output in outputs:
        assert len(output["data"]) == math.prod(output["shape"])


def test_sixteen_bit_floats_do_not_travel_as_json(http: Client) -> None:
    x = half_bits(1)
    for name in ("y_fp16", "y_bf16"):
        outcome = http.outcome(
            lambda one=name: http.infer("halves", x, outputs=[one], json_outputs=[one])
        )
        assert outcome is Outcome.CLIENT_FAULT
    # By hand, since the client itself refuses to write BF16 as JSON.
    numbers = {"shape": [1, 4], "data": [1, 2, 3, 4]}
    fp16 = {"name": "x_fp16", "datatype": "FP16", **numbers}
    bf16 = {"name": "x_bf16", "datatype": "BF16", **numbers}
    for inputs in ([fp16, bf16], [bf16, fp16]):
        refusal = post(http.served, "halves", *inputs)
        assert refusal.outcome is Outcome.CLIENT_FAULT
        assert "binary" in refusal.json["error"]


def test_text_flat_nested_or_prefixed_with_its_length_in_bytes(served: Served) -> None:
    raw = prefixed(*(element.encode() for element in TEXT))
    assert len(raw) == 21
    for reply in (
        post_text(served, data=TEXT),
        post_text(served, data=[TEXT[:2], TEXT[2:]]),
        post_text(served, raw=raw),
    ):
        (output,) = reply.json["outputs"]
        assert output == {"name": "y_bytes", "datatype": "BYTES", "shape": [2, 2], "data": TEXT}


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("text without its length", {"raw": b"abcdefgh"}),
        ("text cut off", {"raw": prefixed(b"a", b"b", b"c", b"dd")[:-1]}),
        ("length cut off", {"raw": prefixed(b"a", b"b", b"c") + b"\1\0"}),
        ("too few elements", {"raw": prefixed(b"a", b"b", b"c")}),
        ("too many elements", {"raw": prefixed(b"a", b"b", b"c", b"d", b"e")}),
        ("too few texts in JSON", {"data": ["a"]}),
        ("number for a text", {"data": [1, 2, 3, 4]}),
    ],
)
def test_text_that_is_not_framed_right(served: Served, name: str, fields: dict[str, Any]) -> None:
    refusal = post_text(served, **fields)
    assert refusal.outcome is served.expected(name)
    assert post_text(served, data=TEXT).outcome is Outcome.OK
    if served.has("faults are explained"):
        assert "'x_bytes'" in refusal.json["error"]


def test_what_json_has_no_word_for_coming_out(served: Served) -> None:
    x = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [-1, 0, 1]}
    reply = post(served, "logarithm", x)
    assert reply.outcome is served.expected("NaN asked for in JSON")
    if reply.outcome is Outcome.OK:
        assert b'"data":[NaN,-Infinity,0' in reply.body
    else:
        assert "binary" in reply.json["error"]


def test_what_json_has_no_word_for_going_in(served: Served) -> None:
    x = {"name": "x", "datatype": "FP32", "shape": [1, 3], "data": [math.nan, 1, math.inf]}
    assert post(served, "logarithm", x).outcome is served.expected("NaN in JSON")


@pytest.mark.parametrize("model", ["nobody", "arithmetic/versions/2", "%2e%2e/tiny"])
def test_a_path_that_leads_nowhere(served: Served, model: str) -> None:
    (reply,) = served.post("arithmetic", (b"{}", {}), path=f"/v2/models/{model}/infer")
    assert reply.outcome is Outcome.CLIENT_FAULT
