"""Prepared requests and what their replies must be.

Requests are encoded once, before any load, and written to a folder that the generator reads:
the same bytes for every backend.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson

from serving.models.repository import Model
from serving.parity import Reference, Tolerance
from serving.protocol import (
    HEADER_LENGTH,
    InferRequest,
    ProtocolError,
    Tensor,
    decode_response,
    encode_request,
    encode_response,
)

_INDEX = "index.json"
_BINARY_REQUEST = InferRequest((), binary_default=True)


@dataclass(frozen=True)
class Payload:
    """One request body and the outputs that a right answer has."""

    body: bytes
    header_length: int | None
    expected: dict[str, Tensor]

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers that the body needs."""
        if self.header_length is None:
            return {"Content-Type": "application/json"}
        return {
            "Content-Type": "application/octet-stream",
            HEADER_LENGTH: str(self.header_length),
        }


def payloads_from(model: Model, reference: Reference) -> list[Payload]:
    """One request of one row per sample, with the reference session's answer."""
    payloads = []
    for sample, answer in zip(reference.samples, reference.answers, strict=True):
        tensors = [Tensor.of(spec.name, sample.inputs[spec.name]) for spec in model.config.inputs]
        body, length = encode_request(tensors)
        expected = {name: Tensor.of(name, array) for name, array in answer.items()}
        payloads.append(Payload(body, length, expected))
    return payloads


def write_payloads(folder: Path, payloads: Sequence[Payload]) -> None:
    """Requests and expected replies as files, plus an index of their header lengths."""
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for number, payload in enumerate(payloads):
        reply, reply_length = encode_response("", 0, _BINARY_REQUEST, [*payload.expected.values()])
        (folder / f"{number}.request").write_bytes(payload.body)
        (folder / f"{number}.reply").write_bytes(reply)
        index.append({"request": payload.header_length, "reply": reply_length})
    (folder / _INDEX).write_text(json.dumps(index))


def read_payloads(folder: Path) -> list[Payload]:
    """What ``write_payloads`` wrote."""
    return [
        Payload(
            (folder / f"{number}.request").read_bytes(),
            lengths["request"],
            decode_response((folder / f"{number}.reply").read_bytes(), lengths["reply"]),
        )
        for number, lengths in enumerate(json.loads((folder / _INDEX).read_text()))
    ]


class ReplyChecker:
    """Checks name, datatype and shape of every reply, and the values of every n-th.

    A reply's JSON part repeats from reply to reply; one that was found right is remembered, so the
    check costs a dictionary look-up.
    """

    def __init__(
        self, payload: Payload, *, values_every: int = 20, tolerance: Tolerance | None = None
    ) -> None:
        """``values_every`` 0 leaves values unchecked, for a server that does not compute them."""
        self._payload = payload
        self._every = values_every
        self._tolerance = tolerance or Tolerance()
        self._known_right: set[tuple[bytes, int]] = set()
        self._count = 0

    def is_right(self, body: bytes, header_length: int | None) -> bool:
        self._count += 1
        values_due = self._every > 0 and self._count % self._every == 1 % self._every
        if header_length is not None and not values_due:
            key = (body[:header_length], len(body))
            if key in self._known_right:
                return True
            if not self._described_right(key[0], len(body) - header_length):
                return False
            self._known_right.add(key)
            return True
        try:
            outputs = decode_response(body, header_length)
        except ProtocolError:
            return False
        return self._same(outputs, values=values_due)

    def _described_right(self, header: bytes, data_bytes: int) -> bool:
        try:
            items = {item["name"]: item for item in orjson.loads(header)["outputs"]}
            sizes = sum(item["parameters"]["binary_data_size"] for item in items.values())
            return sizes == data_bytes and all(
                items[name]["datatype"] == tensor.datatype
                and tuple(items[name]["shape"]) == tensor.array.shape
                and _size_fits(tensor, items[name]["parameters"]["binary_data_size"])
                for name, tensor in self._payload.expected.items()
            )
        except (orjson.JSONDecodeError, KeyError, TypeError):
            return False

    def _same(self, outputs: dict[str, Tensor], *, values: bool) -> bool:
        for name, wanted in self._payload.expected.items():
            got = outputs.get(name)
            if (
                got is None
                or got.datatype != wanted.datatype
                or got.array.shape != wanted.array.shape
            ):
                return False
            if values and not self._equal(got, wanted):
                return False
        return True

    def _equal(self, got: Tensor, wanted: Tensor) -> bool:
        if wanted.array.dtype.kind != "f":
            return bool(np.array_equal(got.array, wanted.array))
        return bool(
            np.allclose(
                got.array,
                wanted.array,
                rtol=self._tolerance.relative,
                atol=self._tolerance.absolute,
                equal_nan=True,
            )
        )


def _size_fits(tensor: Tensor, size: int) -> bool:
    if tensor.datatype == "BYTES":
        return True
    return size == math.prod(tensor.array.shape) * tensor.array.dtype.itemsize
