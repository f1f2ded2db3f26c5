"""The worker's application: Open Inference Protocol v2 in plain FastAPI."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from typing import Any

from anyio import CapacityLimiter, to_thread
from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.requests import ClientDisconnect

from serving.backends.fastapi.engines import Engine, open_engine
from serving.backends.fastapi.metering import (
    CLIENT_GONE,
    INFERENCE,
    Exchange,
    Inference,
    Metering,
)
from serving.backends.fastapi.settings import Settings
from serving.compression import BodyTooLargeError, decompress
from serving.models.config import ModelConfig
from serving.models.pipeline import require_known_form
from serving.models.repository import Model, describe_configuration
from serving.pipelines import FrontRunner
from serving.protocol import (
    HEADER_LENGTH,
    Array,
    ProtocolError,
    Tensor,
    decode_request,
    encode_response,
    parse_header_length,
)
from serving.readiness import WORKER_HEADER
from serving.validation import validate_inputs

PUBLISH_S = 0.1
"""How old a worker's figures may be; to write them at each request would take too long."""


class UnknownModelError(Exception):
    """The path names a model or version that is not served."""


class Worker:
    """One process's engine, made after the fork, with a bound on inferences at once.

    Attributes:
        in_flight: requests that are being answered.
    """

    def __init__(self, settings: Settings) -> None:
        self.model = Model(settings.repository, settings.model)
        self.config: ModelConfig = self.model.config
        require_known_form(self.config)
        self.version = self.model.version
        self.in_flight = 0
        self._front = FrontRunner(self.model.front) if self.model.front else None
        self._engine: Engine = open_engine(settings.engine, self.model.computed)
        self._limiter = CapacityLimiter(settings.inference_threads)
        self._decompressed_limit_bytes = settings.decompressed_limit_bytes
        self._headers = {WORKER_HEADER: str(os.getpid())}

    def require(self, name: str, version: str | None) -> None:
        if name != self.config.name or version not in (None, str(self.version)):
            asked = name if version is None else f"{name} version {version}"
            served = f"{self.config.name} version {self.version}"
            raise UnknownModelError(f"unknown model {asked!r}; this server has {served}")

    @property
    def pending(self) -> int:
        """Requests that wait for an inference thread."""
        return self._limiter.statistics().tasks_waiting

    async def infer(
        self, told: Inference, body: bytes, encoding: str | None, header_length: str | None
    ) -> Response:
        """The answer to a request whose body has arrived; ``told`` is filled on the way."""
        if encoding is not None:
            limit_bytes = self._decompressed_limit_bytes
            body = await to_thread.run_sync(decompress, body, encoding, limit_bytes)
        request = decode_request(body, parse_header_length(header_length))
        inputs = validate_inputs(self.config, request.inputs)
        told.rows = next(iter(inputs.values())).shape[0] if self.config.batched else 1
        told.queued_ns = time.monotonic_ns()
        # Inference blocks, so it leaves the event loop.
        answer = await to_thread.run_sync(self._compute, told, inputs, limiter=self._limiter)
        outputs = [Tensor(s.name, s.datatype, answer[s.name]) for s in self.config.outputs]
        content, length = encode_response(self.config.name, self.version, request, outputs)
        if length is None:
            return Response(content, media_type="application/json", headers=self._headers)
        return Response(
            content,
            media_type="application/octet-stream",
            headers={**self._headers, HEADER_LENGTH: str(length)},
        )

    def _compute(self, told: Inference, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        told.started_ns = time.monotonic_ns()
        if self._front is not None:
            inputs = self._front.run(inputs)
            told.prepared_ns = time.monotonic_ns()
        answer = self._engine.run(inputs)
        told.computed_ns = time.monotonic_ns()
        return answer

    def metadata(self) -> dict[str, Any]:
        return self.config.metadata([self.version], "onnxruntime_onnx")


def create_app() -> FastAPI:
    """The application that gunicorn's workers run; the engine opens at start-up, after the fork."""
    settings = Settings.from_environment()
    exchanges: list[Exchange] = []

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        worker = app.state.worker = Worker(settings)
        with _publishing(settings, worker, exchanges):
            yield

    app = FastAPI(title="infersweep FastAPI baseline", lifespan=lifespan)
    if settings.metrics_port is not None:
        app.add_middleware(Metering, record=exchanges.append)

    @app.exception_handler(ProtocolError)
    async def client_fault(_: Request, error: ProtocolError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=400)

    @app.exception_handler(BodyTooLargeError)
    async def too_large(_: Request, error: BodyTooLargeError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=413)

    @app.exception_handler(UnknownModelError)
    async def unknown_model(_: Request, error: UnknownModelError) -> JSONResponse:
        return JSONResponse({"error": str(error)}, status_code=404)

    @app.exception_handler(ClientDisconnect)
    async def client_gone(_: Request, __: ClientDisconnect) -> Response:
        return Response(status_code=CLIENT_GONE)

    _add_routes(app)
    return app


def _publishing(
    settings: Settings, worker: Worker, exchanges: list[Exchange]
) -> AbstractContextManager[None]:
    """Let the metrics follow what ``worker`` does and ``exchanges`` collects, if there are any."""
    if settings.metrics_port is None:
        return nullcontext()
    # Imported here, because prometheus_client is not needed without metrics.
    from serving.backends.fastapi.metrics import Metrics  # noqa: PLC0415

    metrics = Metrics(worker.config.name, worker.version, settings.slo_ns, steps=worker.model.steps)

    def publish() -> None:
        answered = exchanges.copy()
        exchanges.clear()
        metrics.publish(answered, in_flight=worker.in_flight, pending=worker.pending)

    return _regularly(publish, PUBLISH_S)


@contextmanager
def _regularly(call: Callable[[], None], every_s: float) -> Iterator[None]:
    """``call`` on the running loop, and once more at the end; an error is logged by the loop."""
    loop = asyncio.get_running_loop()
    timer: asyncio.Handle

    def again() -> None:
        nonlocal timer
        timer = loop.call_later(every_s, again)
        call()

    timer = loop.call_soon(again)
    try:
        yield
    finally:
        timer.cancel()
        call()


def _add_routes(app: FastAPI) -> None:
    @app.get("/v2/health/live")
    @app.get("/v2/health/ready")
    async def health() -> Response:
        return Response()

    @app.get("/v2")
    async def server_metadata() -> dict[str, Any]:
        extensions = ["binary_tensor_data", "model_configuration"]
        return {"name": "infersweep-fastapi", "version": "1", "extensions": extensions}

    @app.get("/v2/models/{name}/ready")
    @app.get("/v2/models/{name}/versions/{version}/ready")
    async def model_ready(request: Request, name: str, version: str | None = None) -> Response:
        request.app.state.worker.require(name, version)
        return Response()

    @app.get("/v2/models/{name}")
    @app.get("/v2/models/{name}/versions/{version}")
    async def model_metadata(
        request: Request, name: str, version: str | None = None
    ) -> dict[str, Any]:
        worker: Worker = request.app.state.worker
        worker.require(name, version)
        return worker.metadata()

    @app.get("/v2/models/{name}/config")
    @app.get("/v2/models/{name}/versions/{version}/config")
    def model_configuration(
        request: Request, name: str, version: str | None = None
    ) -> dict[str, Any]:
        worker: Worker = request.app.state.worker
        worker.require(name, version)
        return describe_configuration(worker.model)

    @app.post("/v2/models/{name}/infer")
    @app.post("/v2/models/{name}/versions/{version}/infer")
    async def infer(request: Request, name: str, version: str | None = None) -> Response:
        worker: Worker = request.app.state.worker
        worker.require(name, version)
        body = await request.body()
        told = request.scope[INFERENCE] = Inference()
        headers = request.headers
        worker.in_flight += 1
        try:
            return await worker.infer(
                told, body, headers.get("content-encoding"), headers.get(HEADER_LENGTH)
            )
        finally:
            worker.in_flight -= 1
