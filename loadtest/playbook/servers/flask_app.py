"""The v2 protocol in plain Flask, as the FastAPI baseline speaks it."""

from __future__ import annotations

import os
from typing import Any

from flask import Flask, Response, jsonify, request

from serving.backends.fastapi.settings import Settings
from serving.models.repository import Model, describe_configuration
from serving.pipelines import open_runner
from serving.protocol import (
    HEADER_LENGTH,
    ProtocolError,
    Tensor,
    decode_request,
    encode_response,
    parse_header_length,
)
from serving.readiness import WORKER_HEADER
from serving.validation import validate_inputs

_MODEL = "/v2/models/<name>"
_ENGINE = "onnxruntime_onnx"


class UnknownModelError(Exception):
    """The path names a model that is not served."""


class Worker:
    """One process's model. Threads of the process share its session."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.config, self.version = model.config, model.version
        self._runner = open_runner(model)

    def require(self, name: str) -> None:
        """Raises UnknownModelError for any name but the model's own."""
        if name != self.config.name:
            raise UnknownModelError(f"unknown model {name!r}; this server has {self.config.name}")

    def infer(self, body: bytes, header_length: str | None) -> Response:
        """Raises ProtocolError when the request does not fit the model."""
        asked = decode_request(body, parse_header_length(header_length))
        answer = self._runner.run(validate_inputs(self.config, asked.inputs))
        outputs = [Tensor(s.name, s.datatype, answer[s.name]) for s in self.config.outputs]
        content, length = encode_response(self.config.name, self.version, asked, outputs)
        headers = {WORKER_HEADER: str(os.getpid())}
        if length is None:
            return Response(content, mimetype="application/json", headers=headers)
        headers[HEADER_LENGTH] = str(length)
        return Response(content, mimetype="application/octet-stream", headers=headers)


def create_app() -> Flask:
    """What gunicorn's workers run, each after its fork; settings are those of the baseline."""
    settings = Settings.from_environment()
    worker = Worker(Model(settings.repository, settings.model))
    app = Flask("infersweep-flask")
    _add_errors(app)

    @app.get("/v2/health/live")
    @app.get("/v2/health/ready")
    def health() -> Response:
        return Response()

    @app.get("/v2")
    def server_metadata() -> dict[str, Any]:
        extensions = ["binary_tensor_data", "model_configuration"]
        return {"name": "infersweep-flask", "version": "1", "extensions": extensions}

    @app.get(f"{_MODEL}/ready")
    def model_ready(name: str) -> Response:
        worker.require(name)
        return Response()

    @app.get(_MODEL)
    def model_metadata(name: str) -> dict[str, Any]:
        worker.require(name)
        return worker.config.metadata([worker.version], _ENGINE)

    @app.get(f"{_MODEL}/config")
    def model_configuration(name: str) -> dict[str, Any]:
        worker.require(name)
        return describe_configuration(worker.model)

    @app.post(f"{_MODEL}/infer")
    def infer(name: str) -> Response:
        worker.require(name)
        return worker.infer(request.get_data(cache=False), request.headers.get(HEADER_LENGTH))

    return app


def _add_errors(app: Flask) -> None:
    @app.errorhandler(ProtocolError)
    def client_fault(error: ProtocolError) -> tuple[Response, int]:
        return jsonify(error=str(error)), 400

    @app.errorhandler(UnknownModelError)
    def unknown_model(error: UnknownModelError) -> tuple[Response, int]:
        return jsonify(error=str(error)), 404
