"""The null server: a reply depends on the request's JSON part only, so it is made once for each.

It must cost less than any server that is measured, so that what it shows is the harness.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import httptools
import numpy as np
import orjson
import uvloop

from serving.errors import InfersweepError
from serving.models.config import ModelConfig, TensorSpec
from serving.models.repository import Model, describe_configuration
from serving.process import require_free_port
from serving.protocol import (
    HEADER_LENGTH,
    NUMPY_TYPES,
    Array,
    ProtocolError,
    Tensor,
    decode_request,
    encode_response,
    parse_header_length,
)
from serving.validation import validate_inputs

REMEMBERED_REPLIES = 1024
_HEADER = HEADER_LENGTH.lower().encode()


def zeros(config: ModelConfig, inputs: Mapping[str, Array]) -> list[Tensor]:
    """Outputs of the declared shapes; a free axis is as long as the first input's same axis."""
    shape = next(iter(inputs.values())).shape
    return [Tensor(spec.name, spec.datatype, _zero(config, spec, shape)) for spec in config.outputs]


def _zero(config: ModelConfig, spec: TensorSpec, given: tuple[int, ...]) -> Array:
    shape = tuple(
        length if length != -1 else given[axis] if axis < len(given) else 1
        for axis, length in enumerate(config.wire_dims(spec))
    )
    array = np.zeros(shape, NUMPY_TYPES[spec.datatype])
    if spec.datatype == "BYTES":
        array.fill(b"")
    return array


class Replies:
    """Whole HTTP replies: all pages in advance, answers remembered by the request's JSON part."""

    def __init__(self, model: Model) -> None:
        self._config = model.config
        self._version = model.version
        folder = f"/v2/models/{quote(self._config.name)}"
        places = (folder, f"{folder}/versions/{self._version}")
        self._infer_paths = frozenset(f"{place}/infer".encode() for place in places)
        self._configuration = describe_configuration(model)
        self._pages = self._all_pages(places)
        self._known: dict[tuple[bytes, int], bytes] = {}

    def answer(self, method: bytes, path: bytes, header_length: bytes, body: bytes) -> bytes:
        if path not in self._infer_paths:
            return self._page(method, path)
        if method != b"POST":
            return _fault(405, f"{path.decode('latin-1')} takes POST")
        try:
            length = parse_header_length(header_length.decode("latin-1") or None)
            # The size belongs to the key, or a cut body would pass for the whole one.
            key = (body[:length], len(body))
            reply = self._known.get(key)
            return self._infer(key, body, length) if reply is None else reply
        except ProtocolError as error:
            return _fault(400, str(error))

    def _infer(self, key: tuple[bytes, int], body: bytes, length: int | None) -> bytes:
        request = decode_request(body, length)
        outputs = zeros(self._config, validate_inputs(self._config, request.inputs))
        content, reply_length = encode_response(self._config.name, self._version, request, outputs)
        header = "" if reply_length is None else f"{HEADER_LENGTH}: {reply_length}\r\n"
        if len(self._known) >= REMEMBERED_REPLIES:
            self._known.clear()
        self._known[key] = _http(200, content, header)
        return self._known[key]

    def _page(self, method: bytes, path: bytes) -> bytes:
        text = path.decode("latin-1")
        if path not in self._pages:
            return _fault(404, f"there is nothing at {text}")
        if method not in (b"GET", b"HEAD"):
            return _fault(405, f"{text} takes GET")
        page = self._pages[path]
        return page if method == b"GET" else page.partition(b"\r\n\r\n")[0] + b"\r\n\r\n"

    def _all_pages(self, places: tuple[str, ...]) -> dict[bytes, bytes]:
        healthy = _http(200, b"")
        server = {"name": "infersweep-null", "version": "1", "extensions": ["binary_tensor_data"]}
        pages = {
            b"/v2": _http(200, orjson.dumps(server)),
            b"/v2/health/live": healthy,
            b"/v2/health/ready": healthy,
        }
        for place in places:
            pages[place.encode()] = _http(200, orjson.dumps(self._metadata()))
            pages[f"{place}/ready".encode()] = healthy
            pages[f"{place}/config".encode()] = _http(200, orjson.dumps(self._configuration))
        return pages

    def _metadata(self) -> dict[str, Any]:
        return self._config.metadata([self._version], "null")


def _fault(status: int, text: str) -> bytes:
    return _http(status, orjson.dumps({"error": text}))


def _http(status: int, body: bytes, headers: str = "") -> bytes:
    kind = "application/octet-stream" if headers else "application/json"
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
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
        except httptools.HttpParserError as error:
            self._transport.write(_fault(400, f"this is not HTTP/1.1: {error}"))
            self._transport.close()

    def on_message_begin(self) -> None:
        self._parts: list[bytes] = []
        self._path = b""
        self._header_length = b""

    def on_url(self, url: bytes) -> None:
        self._path += url

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() == _HEADER:
            self._header_length = value

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        body = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
        method = self._parser.get_method()
        self._transport.write(self._replies.answer(method, self._path, self._header_length, body))
        if not self._parser.should_keep_alive():
            self._transport.close()


async def _serve(replies: Replies, host: str, port: int) -> None:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    server = await loop.create_server(lambda: Connection(replies), host, port, backlog=1024)
    # Nothing is ever in flight between two events, so there is nothing to drain.
    await stopping.wait()
    server.close()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m serving.backends.null")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    asked = parser.parse_args()
    try:
        require_free_port(asked.port, asked.host)
        replies = Replies(Model(asked.repository, asked.model))
    except InfersweepError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return error.exit_code
    uvloop.run(_serve(replies, asked.host, asked.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
