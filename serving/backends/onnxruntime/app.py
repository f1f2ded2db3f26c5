"""The server's application: v2 requests in, v2 replies out, whatever carries them."""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import orjson
from prometheus_client import CONTENT_TYPE_LATEST

from serving.batching import Batcher, QueueFullError
from serving.metrics import ServerMetrics
from serving.models.repository import Model, describe_configuration
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
JSON = (("content-type", "application/json"),)
BINARY = ("content-type", "application/octet-stream")
RETRY = ("retry-after", "1")


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
        self.metrics = ServerMetrics(self.config.name, self.version)
        self.in_flight = 0
        sessions = [open_session(self.model) for _ in range(self.config.instances)]
        self.batcher = Batcher(
            self.config,
            [session.run for session in sessions],
            queue_limit=self.limits.queue,
            on_batch=self.metrics.batch_rows.observe,
        )
        folder = f"/v2/models/{quote(self.config.name)}"
        self._places = (folder, f"{folder}/versions/{self.version}")
        self._infer_paths = frozenset(f"{place}/infer" for place in self._places)
        self._pages = self._all_pages()

    def refusal(self, method: str, path: str) -> Answer | None:
        """Why this cannot be asked for, or ``None`` when it can."""
        if path in self._infer_paths:
            allowed: tuple[str, ...] = ("POST",)
        elif path in self._pages:
            allowed = ("GET", "HEAD")
        else:
            served = f"model {self.config.name!r} version {self.version}"
            return _fault(404, f"there is nothing at {path}; this server has {served}")
        if method in allowed:
            return None
        return _fault(405, f"{path} takes {allowed[0]}, not {method}", ("allow", allowed[0]))

    def too_large(self) -> Answer:
        """The refusal of a body above the limit."""
        return _fault(413, f"the body is larger than the limit of {self.limits.body_bytes} bytes")

    def get(self, path: str) -> Answer:
        """Health, metadata, configuration and metrics; ``path`` has passed ``refusal``."""
        return self._pages[path]()

    async def infer(self, header_length: str | None, body: bytes) -> Answer:
        """Inference; a fault of the client is a 4xx, a full queue or a shutdown is a 503."""
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
        if not self.ready:
            return "refused", _fault(503, "the server is shutting down", RETRY)
        try:
            return "ok", await self._infer(header_length, body)
        except ProtocolError as error:
            return "client_fault", _fault(400, str(error))
        except QueueFullError as error:
            return "refused", _fault(503, str(error), RETRY)
        except Exception as error:
            traceback.print_exception(error)
            return "server_fault", _fault(500, f"inference failed: {error}")

    async def _infer(self, header_length: str | None, body: bytes) -> Answer:
        request = decode_request(body, parse_header_length(header_length))
        inputs = validate_inputs(self.config, request.inputs)
        rows = next(iter(inputs.values())).shape[0] if self.config.batched else 1
        answer = await asyncio.wrap_future(self.batcher.submit(inputs, rows))
        self.metrics.queue.observe(answer.queue_ns / 1e9)
        self.metrics.compute.observe(answer.compute_ns / 1e9)
        outputs = [
            Tensor(spec.name, spec.datatype, answer.outputs[spec.name])
            for spec in self.config.outputs
        ]
        content, length = encode_response(self.config.name, self.version, request, outputs)
        if length is None:
            return Answer(200, content)
        return Answer(200, content, (BINARY, (HEADER_LENGTH.lower(), str(length))))

    def _all_pages(self) -> Mapping[str, Callable[[], Answer]]:
        """What can be read, by path; each page of the model with and without its version."""
        pages: dict[str, Callable[[], Answer]] = {
            "/v2/health/live": lambda: Answer(200),
            "/v2/health/ready": self._health,
            "/v2": lambda: _json(SERVER_METADATA),
            "/metrics": self._metrics,
        }
        for place in self._places:
            pages[place] = lambda: _json(self._metadata())
            pages[f"{place}/ready"] = self._health
            pages[f"{place}/config"] = lambda: _json(describe_configuration(self.model))
        return pages

    def _health(self) -> Answer:
        return Answer(200 if self.ready else 503)

    def _metrics(self) -> Answer:
        return Answer(200, self.metrics.exposition(), (("content-type", CONTENT_TYPE_LATEST),))

    def _metadata(self) -> dict[str, Any]:
        return self.config.metadata([self.version], "onnxruntime_onnx")


def _json(value: Mapping[str, Any]) -> Answer:
    return Answer(200, orjson.dumps(value))


def _fault(status: int, text: str, *headers: tuple[str, str]) -> Answer:
    return Answer(status, orjson.dumps({"error": text}), (*JSON, *headers))
