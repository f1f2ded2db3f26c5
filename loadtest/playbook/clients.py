"""Clients that do all that clients do: they encode, send, wait and decode."""

from __future__ import annotations

import gzip
from collections.abc import Mapping
from http.client import HTTPConnection
from urllib.parse import urlsplit

import grpc

from loadtest.playbook.called import Calls, Job
from loadtest.playbook.engines import calls_of
from serving.errors import ServerError
from serving.protocol import HEADER_LENGTH, Array, Tensor, decode_response, encode_request
from serving.protocol.grpc import INFER_METHOD, decode_infer_response, encode_infer_request

WHAT = (
    "one client of Python's http.client over loopback, one request after the other, "
    "tensors as binary data"
)
GRPC_WHAT = "one client of Python's grpcio over loopback, one request after the other"
_TIMEOUT_S = 10.0
_TOLD = 200
"""Characters of a refusal that are told."""


class Client:
    """Python's ``http.client``, which sets TCP_NODELAY by itself."""

    def __init__(
        self, url: str, model: str, *, keeps: bool = True, gzip_level: int | None = None
    ) -> None:
        """Connects when first used.

        Args:
            url: of the server.
            model: that is asked.
            keeps: the connection is kept; else each request has one of its own.
            gzip_level: of bodies, 1 to 9; ``None`` leaves them as they are.
        """
        address = urlsplit(url)
        self._connection = HTTPConnection(address.hostname or "", address.port, timeout=_TIMEOUT_S)
        self._path = f"/v2/models/{model}/infer"
        self._keeps, self._gzip_level = keeps, gzip_level

    def encode(self, inputs: Mapping[str, Array]) -> tuple[bytes, dict[str, str]]:
        """A body and the headers that tell of it."""
        body, header_length = encode_request(_tensors(inputs))
        headers = {"Content-Type": "application/octet-stream", HEADER_LENGTH: str(header_length)}
        if self._gzip_level is not None:
            body = gzip.compress(body, self._gzip_level)
            headers["Content-Encoding"] = "gzip"
        if not self._keeps:
            headers["Connection"] = "close"
        return body, headers

    def infer(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Output name to array.

        Raises:
            ServerError: the server refuses.
            OSError: it does not answer.
        """
        body, headers = self.encode(inputs)
        self._connection.request("POST", self._path, body, headers)
        reply = self._connection.getresponse()
        content = reply.read()
        if not self._keeps:
            self._connection.close()
        if reply.status != 200:
            told = content[:_TOLD].decode("utf-8", "replace")
            raise ServerError(f"the server answered {reply.status}: {told}", hint="See its log.")
        told_length = reply.headers.get(HEADER_LENGTH)
        length = None if told_length is None else int(told_length)
        return {name: tensor.array for name, tensor in decode_response(content, length).items()}

    def close(self) -> None:
        self._connection.close()


def client_calls(job: Job) -> Calls:
    """The model's own samples, one after the other; the arm's arguments are those of ``Client``."""
    client = Client(server_of(job), job.model.name, **job.arguments)
    calls = calls_of(client.infer, job.model)
    return Calls(calls.call, calls.answer, close=client.close)


def grpc_calls(job: Job) -> Calls:
    """The same over gRPC, on one channel."""
    unlimited = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
    channel = grpc.insecure_channel(urlsplit(server_of(job)).netloc, unlimited)
    method, name = channel.unary_unary(INFER_METHOD), job.model.name

    def infer(inputs: Mapping[str, Array]) -> dict[str, Array]:
        reply = method(encode_infer_request(name, _tensors(inputs)), timeout=_TIMEOUT_S)
        return {name: tensor.array for name, tensor in decode_infer_response(reply).items()}

    calls = calls_of(infer, job.model)
    return Calls(calls.call, calls.answer, close=channel.close)


def server_of(job: Job) -> str:
    """The address of the server that the arm calls."""
    assert job.url is not None, "an arm of a client is against a server"
    return job.url


def _tensors(inputs: Mapping[str, Array]) -> list[Tensor]:
    return [Tensor.of(name, array) for name, array in inputs.items()]
