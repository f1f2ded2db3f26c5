"""The server's application: v2 requests in, v2 replies out, whatever carries them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
from google.protobuf import json_format

from serving.batching import Batcher, QueueFullError
from serving.metrics import ServerMetrics
from serving.models.config import TensorSpec, load_message
from serving.models.repository import Model
from serving.protocol import (
    HEADER_LENGTH,
    ProtocolError,
    Tensor,
    decode_request,
    encode_response,
    parse_header_length,
)
from serving.session import open_session
from serving.validation import validate_inputs

SERVER_METADATA = {
    "name": "infersweep-onnxruntime",
    "version": "1",
    "extensions": ["binary_tensor_data", "model_configuration"],
}
MODEL_PREFIX = "/v2/models/"
JSON = (("content-type", "application/json"),)


@dataclass(frozen=True)
class Answer:
    """An HTTP reply before it is sent."""

    status: int
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = JSON


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one client from taking the server down; printed at start."""

    body_bytes: int = 256 << 20
    queue: int = 1024


@dataclass
class Application:
    """One model, its sessions and its queue. ``ready`` turns false when draining begins."""

    model: Model
    limits: Limits = field(default_factory=Limits)
    ready: bool = True

    def __post_init__(self) -> None:
        self.config = self.model.config
        self.version = self.model.version
        sessions = [open_session(self.model) for _ in range(self.config.instances)]
        self.batcher = Batcher(
            self.config, [session.run for session in sessions], queue_limit=self.limits.queue
        )
        self.metrics = ServerMetrics(self.config.name, self.version)
        self.in_flight = 0

    def get(self, path: str) -> Answer:
        """Health, metadata, configuration and metrics."""
        health = Answer(200 if self.ready else 503)
        if path.startswith(MODEL_PREFIX):
            action, refusal = self._route(path)
            pages: dict[str, Callable[[], Answer]] = {
                "": lambda: _json(self._metadata()),
                "ready": lambda: health,
                "config": lambda: _json(self._configuration()),
            }
            if refusal:
                return refusal
        else:
            action = path.rstrip("/")
            pages = {
                "/v2/health/live": lambda: Answer(200),
                "/v2/health/ready": lambda: health,
                "/v2": lambda: _json(SERVER_METADATA),
                "/metrics": self._metrics,
            }
        page = pages.get(action)
        return page() if page else _fault(404, f"there is nothing at {path}")

    async def post(self, path: str, header_length: str | None, body: bytes) -> Answer:
        """Inference; a fault of the client is a 4xx, a full queue is a 503."""
        action, refusal = self._route(path)
        if refusal:
            return refusal
        if action != "infer":
            return _fault(404, f"there is nothing to post to at {path}")
        if len(body) > self.limits.body_bytes:
            limit = self.limits.body_bytes
            return _fault(413, f"the body has {len(body)} bytes, the limit is {limit}")
        self.in_flight += 1
        self.metrics.in_flight.inc()
        try:
            outcome, reply = await self._guarded(header_length, body)
        finally:
            self.in_flight -= 1
            self.metrics.in_flight.dec()
        self.metrics.count(outcome)
        return reply

    async def _guarded(self, header_length: str | None, body: bytes) -> tuple[str, Answer]:
        """Outcome class and reply; no exception leaves."""
        try:
            return "ok", await self._infer(header_length, body)
        except ProtocolError as error:
            return "client_fault", _fault(400, str(error))
        except QueueFullError as error:
            return "refused", _fault(503, str(error), ("retry-after", "1"))
        except Exception as error:
            return "server_fault", _fault(500, f"inference failed: {error}")

    async def _infer(self, header_length: str | None, body: bytes) -> Answer:
        request = decode_request(body, parse_header_length(header_length))
        inputs = validate_inputs(self.config, request.inputs)
        rows = next(iter(inputs.values())).shape[0] if self.config.batched else 1
        answer = await asyncio.wrap_future(self.batcher.submit(inputs, rows))
        self.metrics.queue.observe(answer.queue_ns / 1e9)
        self.metrics.compute.observe(answer.compute_ns / 1e9)
        self.metrics.batch_rows.observe(answer.batch_rows)
        outputs = [
            Tensor(spec.name, spec.datatype, answer.outputs[spec.name])
            for spec in self.config.outputs
        ]
        content, length = encode_response(self.config.name, self.version, request, outputs)
        if length is None:
            return Answer(200, content)
        binary = ("content-type", "application/octet-stream")
        return Answer(200, content, (binary, (HEADER_LENGTH.lower(), str(length))))

    def _route(self, path: str) -> tuple[str, Answer | None]:
        """What of the model is wanted, and the refusal when there is no such model."""
        name, _, rest = path.removeprefix(MODEL_PREFIX).partition("/")
        version = str(self.version)
        if rest.startswith("versions/"):
            version, _, rest = rest.removeprefix("versions/").partition("/")
        if name != self.config.name or version != str(self.version):
            served = f"{self.config.name!r} version {self.version}"
            return rest, _fault(404, f"unknown model {name!r} version {version}; here is {served}")
        return rest, None

    def _configuration(self) -> dict[str, Any]:
        message = load_message(self.model.folder / "config.pbtxt")
        described: dict[str, Any] = json_format.MessageToDict(
            message, preserving_proto_field_name=True
        )
        return described

    def _metrics(self) -> Answer:
        return Answer(200, self.metrics.exposition(), (("content-type", "text/plain"),))

    def _metadata(self) -> dict[str, Any]:
        return {
            "name": self.config.name,
            "versions": [str(version) for version in self.model.versions],
            "platform": "onnxruntime_onnx",
            "inputs": [self._describe(spec) for spec in self.config.inputs],
            "outputs": [self._describe(spec) for spec in self.config.outputs],
        }

    def _describe(self, spec: TensorSpec) -> dict[str, Any]:
        shape = list(self.config.wire_dims(spec))
        return {"name": spec.name, "datatype": spec.datatype, "shape": shape}


def _json(value: Mapping[str, Any]) -> Answer:
    return Answer(200, orjson.dumps(value))


def _fault(status: int, text: str, *headers: tuple[str, str]) -> Answer:
    return Answer(status, orjson.dumps({"error": text}), (*JSON, *headers))
