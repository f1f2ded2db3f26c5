"""Requests that are wrong in one way each, made by hand because no client would make them."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

HEADER_LENGTH = "Inference-Header-Content-Length"
A: Mapping[str, Any] = {"name": "a", "datatype": "INT32", "shape": [1, 3], "data": [1, 2, 3]}
B: Mapping[str, Any] = {**A, "name": "b"}
RAW = struct.pack("<3i", 1, 2, 3)


@dataclass(frozen=True)
class Fault:
    """A request to model ``arithmetic`` whose refusal must hold ``words``."""

    name: str
    body: bytes
    words: tuple[str, ...] = ()
    headers: Mapping[str, str] = field(default_factory=dict)


def body_of(*inputs: Mapping[str, Any], **more: Any) -> bytes:
    return json.dumps({"inputs": inputs, **more}).encode()


def without(key: str) -> dict[str, Any]:
    return {name: value for name, value in A.items() if name != key}


def altered(name: str, *words: str, **fields: Any) -> Fault:
    """The right request but for some fields of input ``a``."""
    return Fault(name, body_of({**A, **fields}, B), ("'a'", *words))


def binary_request(
    *, size: object = len(RAW), raw: bytes = RAW, header_length: object = None
) -> tuple[bytes, Mapping[str, str]]:
    """Input ``a`` as 12 bytes behind the JSON; right unless an argument says otherwise."""
    head = body_of({**without("data"), "parameters": {"binary_data_size": size}}, B)
    told = len(head) if header_length is None else header_length
    return head + raw, {HEADER_LENGTH: str(told)}


def binary(name: str, *words: str, **fields: Any) -> Fault:
    body, headers = binary_request(**fields)
    return Fault(name, body, words, headers)


_GOOD, _GOOD_HEADERS = binary_request()

FRAMING_FAULTS = (
    Fault("header length absent", _GOOD, (HEADER_LENGTH,)),
    binary("header length of the whole body", str(len(_GOOD)), header_length=len(_GOOD)),
    binary("header length beyond the body", "1000000", str(len(_GOOD)), header_length=1_000_000),
    binary("header length below zero", HEADER_LENGTH, "-5", header_length=-5),
    binary("header length not a number", HEADER_LENGTH, "'abc'", header_length="abc"),
    binary("size too small", "'a'", "12 bytes", "8", size=8),
    binary("size too large", "'a'", "16", "12", size=16),
    binary("size beyond the body", "'a'", "1000000", "12", size=1_000_000),
    binary("size is text", "'a'", "'12'", size="12"),
    binary("size below zero", "'a'", "-1", size=-1),
    binary("bytes left over", "4 bytes", raw=RAW + b"1234"),
    binary("bytes missing", "'a'", "12", "8", raw=RAW[:8]),
)

JSON_FAULTS = (
    Fault("empty body", b"", ("JSON",)),
    Fault("not JSON", b"{nope", ("JSON",)),
    Fault("JSON of another kind", b"[]", ("object", "list")),
    Fault("no inputs", b"{}", ("inputs",)),
    Fault("inputs of another kind", b'{"inputs": "a"}', ("inputs",)),
    Fault("id is a number", body_of(A, B, id=7), ("id", "7")),
    Fault("unknown content encoding", body_of(A, B), ("'br'",), {"Content-Encoding": "br"}),
    Fault("body not compressed", body_of(A, B), ("gzip",), {"Content-Encoding": "gzip"}),
    Fault(
        "compressed body cut off",
        gzip.compress(body_of(A, B))[:-12],
        ("gzip",),
        {"Content-Encoding": "gzip"},
    ),
)

TENSOR_FAULTS = (
    Fault("missing input", body_of(A), ("b",)),
    Fault("input twice", body_of(A, A, B), ("'a'",)),
    Fault("unexpected input", body_of(A, B, {**A, "name": "c"}), ("'c'", "a, b")),
    Fault("unexpected output", body_of(A, B, outputs=[{"name": "z"}]), ("'z'", "sum, difference")),
    Fault("rows that differ", body_of(A, {**B, "shape": [2, 3], "data": [0] * 6}), ("1", "2")),
    altered("other datatype", "INT32", "INT64", datatype="INT64"),
    altered("unknown datatype", "'COMPLEX'", datatype="COMPLEX"),
    altered("other shape", "[-1, 3]", "[1, 4]", shape=[1, 4], data=[1, 2, 3, 4]),
    altered("other rank", "[-1, 3]", "[3]", shape=[3]),
    altered("shape below zero", "-1", shape=[-1, 3]),
    altered("shape with a fraction", "1.5", shape=[1.5, 3]),
    altered("shape too large for any memory", shape=[1 << 40, 1 << 40]),
    altered("too few values", "3", "2", data=[1, 2]),
    altered("too many values", "3", "4", data=[1, 2, 3, 4]),
    altered("text for a number", "'one'", "INT32", data=["one", 2, 3]),
    altered("fraction for an integer", "1.5", "INT32", data=[1.5, 2, 3]),
    altered("integer outside its datatype", "2147483648", "INT32", data=[2**31, 2, 3]),
    Fault("no shape", body_of(without("shape"), B), ("'a'", "shape")),
    Fault("no data", body_of(without("data"), B), ("'a'", "data")),
)

FAULTS = (*FRAMING_FAULTS, *JSON_FAULTS, *TENSOR_FAULTS)
