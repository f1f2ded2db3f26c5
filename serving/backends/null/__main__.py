"""The null server: a reply depends on the request's JSON part only, so it is made once for each."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import cast

import httptools
import numpy as np
import orjson
import uvloop

from serving.models.config import ModelConfig, TensorSpec
from serving.models.repository import Model
from serving.protocol import (
    HEADER_LENGTH,
    NUMPY_TYPES,
    Array,
    InferRequest,
    ProtocolError,
    Tensor,
    decode_request,
    encode_response,
    parse_header_length,
)
from serving.validation import validate_inputs


def zeros(config: ModelConfig, inputs: Mapping[str, Array]) -> list[Tensor]:
    """Outputs of the declared shapes; a free axis has length 1, the batch axis the input's."""
    rows = next(iter(inputs.values())).shape[0] if config.batched else 1
    return [Tensor(spec.name, spec.datatype, _zero(config, spec, rows)) for spec in config.outputs]


def _zero(config: ModelConfig, spec: TensorSpec, rows: int) -> Array:
    dims = tuple(1 if axis == -1 else axis for axis in spec.dims)
    shape = (rows, *dims) if config.batched else dims
    array = np.zeros(shape, NUMPY_TYPES[spec.datatype])
    if spec.datatype == "BYTES":
        array.fill(b"")
    return array


class Replies:
    """Whole HTTP replies, remembered by the request's JSON part."""

    def __init__(self, model: Model) -> None:
        self._config = model.config
        self._version = model.version
        self._known: dict[bytes, bytes] = {}

    def answer(self, method: bytes, path: bytes, header_length: str | None, body: bytes) -> bytes:
        if method != b"POST":
            return self._describe(path.decode("latin-1"))
        try:
            length = parse_header_length(header_length)
            key = body[:length] if length is not None else body
            if key not in self._known:
                self._known[key] = self._infer(body, length)
            return self._known[key]
        except ProtocolError as error:
            return _http(400, orjson.dumps({"error": str(error)}))

    def _infer(self, body: bytes, length: int | None) -> bytes:
        request: InferRequest = decode_request(body, length)
        inputs = validate_inputs(self._config, request.inputs)
        outputs = zeros(self._config, inputs)
        content, reply_length = encode_response(self._config.name, self._version, request, outputs)
        header = "" if reply_length is None else f"{HEADER_LENGTH}: {reply_length}\r\n"
        return _http(200, content, header)

    def _describe(self, path: str) -> bytes:
        model = f"/v2/models/{self._config.name}"
        if path in ("/v2/health/live", "/v2/health/ready", f"{model}/ready"):
            return _http(200, b"")
        if path == "/v2":
            server = {"name": "infersweep-null", "version": "1", "extensions": []}
            return _http(200, orjson.dumps(server))
        if path != model:
            return _http(404, orjson.dumps({"error": f"there is nothing at {path}"}))
        described = {
            what: [
                {
                    "name": spec.name,
                    "datatype": spec.datatype,
                    "shape": list(self._config.wire_dims(spec)),
                }
                for spec in specs
            ]
            for what, specs in (("inputs", self._config.inputs), ("outputs", self._config.outputs))
        }
        names = {"name": self._config.name, "versions": [str(self._version)], "platform": "null"}
        return _http(200, orjson.dumps({**names, **described}))


def _http(status: int, body: bytes, headers: str = "") -> bytes:
    kind = "application/octet-stream" if headers else "application/json"
    head = (
        f"HTTP/1.1 {status} {'OK' if status == 200 else 'Error'}\r\n"
        f"Content-Type: {kind}\r\nContent-Length: {len(body)}\r\n{headers}\r\n"
    )
    return head.encode("latin-1") + body


class Connection(asyncio.Protocol):
    """One client. Method names are asyncio's and httptools's."""

    def __init__(self, replies: Replies) -> None:
        self._replies = replies
        self._parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports do not derive from asyncio's classes.
        self._transport = cast("asyncio.WriteTransport", transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError:
            raise
        except httptools.HttpParserError:
            self._transport.close()

    def on_message_begin(self) -> None:
        self._parts: list[bytes] = []
        self._path = b""
        self._header_length: str | None = None

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == HEADER_LENGTH.lower().encode():
            self._header_length = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        reply = self._replies.answer(
            self._parser.get_method(), self._path, self._header_length, body
        )
        self._transport.write(reply)
        if not self._parser.should_keep_alive():
            self._transport.close()


async def _serve(replies: Replies, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Connection(replies), host, port, backlog=1024)
    await server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m serving.backends.null")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    uvloop.run(_serve(Replies(Model(asked.repository, asked.model)), asked.host, asked.port))


if __name__ == "__main__":
    main()
