"""Prepared requests as files, and how a reply is told right from wrong.

The generator imports this, so it stays small; ``loadtest.prepare`` makes the requests.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import orjson

from serving.protocol import (
    HEADER_LENGTH,
    InferRequest,
    ProtocolError,
    Tensor,
    decode_response,
    encode_response,
)
from serving.tolerance import Tolerance

_INDEX = "index.json"
_BINARY_REQUEST = InferRequest((), binary_default=True)

Encoding = Literal["binary", "json", "grpc"]


@dataclass(frozen=True)
class Payload:
    """One request body and the outputs that a right answer has.

    Attributes:
        header_length: bytes of the JSON part of a body that binary data follows.
        tolerance: how close the values of a right answer are.
    """

    body: bytes
    header_length: int | None
    expected: dict[str, Tensor]
    encoding: Encoding = "binary"
    tolerance: Tolerance = field(default_factory=Tolerance)

    @property
    def headers(self) -> dict[str, str]:
        """HTTP headers that the body needs."""
        if self.header_length is None:
            return {"Content-Type": "application/json"}
        return {
            "Content-Type": "application/octet-stream",
            HEADER_LENGTH: str(self.header_length),
        }


def write_payloads(folder: Path, payloads: Sequence[Payload]) -> None:
    """Requests and expected replies as files, plus an index of their header lengths."""
    folder.mkdir(parents=True, exist_ok=True)
    index = []
    for number, payload in enumerate(payloads):
        reply, reply_length = encode_response("", 0, _BINARY_REQUEST, [*payload.expected.values()])
        (folder / f"{number}.request").write_bytes(payload.body)
        (folder / f"{number}.reply").write_bytes(reply)
        index.append(
            {
                "request": payload.header_length,
                "reply": reply_length,
                "encoding": payload.encoding,
                "tolerance": asdict(payload.tolerance),
            }
        )
    (folder / _INDEX).write_text(json.dumps(index))


def read_payloads(folder: Path) -> list[Payload]:
    """What ``write_payloads`` wrote."""
    return [
        Payload(
            (folder / f"{number}.request").read_bytes(),
            entry["request"],
            decode_response((folder / f"{number}.reply").read_bytes(), entry["reply"]),
            entry["encoding"],
            Tolerance(**entry["tolerance"]),
        )
        for number, entry in enumerate(json.loads((folder / _INDEX).read_text()))
    ]


def in_sequence(payloads: Sequence[Payload], sequence_id: int) -> list[Payload]:
    """One pass of a stream over ``payloads``, each with the v2 parameters that tell its place.

    A server with a sequence batcher goes by them
    (https://github.com/triton-inference-server/server/blob/main/docs/protocol/extension_sequence.md).
    """
    last = len(payloads) - 1
    return [
        replace(payload, **_placed(payload, sequence_id, start=step == 0, end=step == last))
        for step, payload in enumerate(payloads)
    ]


def _placed(payload: Payload, sequence_id: int, *, start: bool, end: bool) -> dict[str, Any]:
    """``body`` and ``header_length`` with the sequence parameters in them."""
    if payload.encoding == "grpc":
        # Imported here, as in ``is_right``.
        from tritonclient.grpc import service_pb2  # noqa: PLC0415

        message = service_pb2.ModelInferRequest.FromString(payload.body)
        message.parameters["sequence_id"].int64_param = sequence_id
        message.parameters["sequence_start"].bool_param = start
        message.parameters["sequence_end"].bool_param = end
        return {"body": bytes(message.SerializeToString())}
    length = payload.header_length
    header = orjson.loads(payload.body[:length])
    place = {"sequence_id": sequence_id, "sequence_start": start, "sequence_end": end}
    text = orjson.dumps({**header, "parameters": {**header.get("parameters", {}), **place}})
    if length is None:
        return {"body": text}
    return {"body": text + payload.body[length:], "header_length": len(text)}


def is_right(payload: Payload, body: bytes, header_length: int | None, *, values: bool) -> bool:
    """Whether ``body`` holds the expected outputs: name, datatype, shape and, if asked, values."""
    try:
        if payload.encoding == "grpc":
            # Imported here: its schema costs memory that a generator of HTTP need not have.
            from serving.protocol.grpc import decode_infer_response  # noqa: PLC0415

            outputs = decode_infer_response(body)
        else:
            outputs = decode_response(body, header_length)
    except ProtocolError:
        return False
    return all(
        (got := outputs.get(name)) is not None
        and got.datatype == wanted.datatype
        and got.array.shape == wanted.array.shape
        and (not values or _equal(got, wanted, payload.tolerance))
        for name, wanted in payload.expected.items()
    )


def _equal(got: Tensor, wanted: Tensor, tolerance: Tolerance) -> bool:
    if wanted.array.dtype.kind != "f":
        return bool(np.array_equal(got.array, wanted.array))
    relative, absolute = tolerance.relative, tolerance.absolute
    return bool(np.allclose(got.array, wanted.array, relative, absolute, equal_nan=True))


class ReplyChecker:
    """Checks every reply's name, datatype and shape, and the values of those that were not seen.

    A reply equal to one that was found right is right. Of the others with a known JSON part and
    length, the values of every n-th are compared.
    """

    def __init__(self, payload: Payload, *, values_every: int = 20) -> None:
        """``values_every`` 0 leaves values unchecked, for a server that does not compute them."""
        self._payload = payload
        self._every = values_every
        self._described: set[tuple[bytes, int]] = set()
        self._right: set[bytes] = set()
        self._count = 0

    def is_right(self, body: bytes, header_length: int | None) -> bool:
        if body in self._right:
            return True
        described = None if header_length is None else (body[:header_length], len(body))
        if described in self._described:
            self._count += 1
            if not self._every or self._count % self._every:
                return True
        right = is_right(self._payload, body, header_length, values=self._every > 0)
        if right:
            if described:
                self._described.add(described)
            if len(self._right) < KNOWN_REPLIES:
                self._right.add(body)
        return right


KNOWN_REPLIES = 16
"""Replies remembered per payload; batching gives one model a few that differ in the last bits."""
