"""One connection of the Python engine: HTTP (also TLS), or gRPC."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

import grpc
from grpc.experimental.gevent import init_gevent

from loadtest.connection import Connection, Reply, prepare
from loadtest.engine.base import Target
from loadtest.payload import ReplyChecker
from serving.protocol import HEADER_LENGTH
from serving.protocol.grpc import INFER_METHOD

_HEADER_LENGTH = HEADER_LENGTH.lower().encode()
_UNLIMITED = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
_CLIENT_FAULTS = frozenset(
    {
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.StatusCode.NOT_FOUND,
        grpc.StatusCode.ALREADY_EXISTS,
        grpc.StatusCode.PERMISSION_DENIED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.FAILED_PRECONDITION,
        grpc.StatusCode.OUT_OF_RANGE,
        grpc.StatusCode.UNIMPLEMENTED,
    }
)


@dataclass(frozen=True)
class Answer:
    """Attributes: ``first_byte_ns`` is 0 where the client library does not tell."""

    outcome: str
    status: int
    first_byte_ns: int
    done_ns: int


class Caller(Protocol):
    """Sends one request at a time and waits for its answer; never raises for a server's fault."""

    def call(self, payload: int) -> Answer: ...

    def close(self) -> None: ...


class HttpCaller:
    def __init__(self, target: Target, ca_file: Path | None) -> None:
        path = f"/v2/models/{target.model}/infer"
        self._connection = Connection(target.url, timeout_s=target.timeout_s, ca_file=ca_file)
        self._requests = [
            prepare(target.url, path, {**p.headers, **target.headers}, p.body)
            for p in target.payloads
        ]
        self._checkers = _checkers(target)

    def call(self, payload: int) -> Answer:
        try:
            reply = self._connection.exchange(self._requests[payload])
        except TimeoutError:
            return Answer("timeout", 0, 0, time.monotonic_ns())
        except OSError:
            return Answer("connection_error", 0, 0, time.monotonic_ns())
        outcome = _judge(reply, self._checkers[payload])
        return Answer(outcome, reply.status, reply.first_byte_ns, reply.done_ns)

    def close(self) -> None:
        self._connection.close()


def _judge(reply: Reply, checker: ReplyChecker) -> str:
    if reply.status != 200:
        return "server_fault_5xx" if reply.status >= 500 else "client_fault_4xx"
    length = reply.headers.get(_HEADER_LENGTH)
    if length is not None and not length.isdigit():
        return "wrong_answer"
    right = checker.is_right(reply.body, None if length is None else int(length))
    return "ok" if right else "wrong_answer"


class GrpcCaller:
    """``grpc`` and ``grpcs`` addresses. Messages of any size, one connection per caller."""

    def __init__(self, target: Target, ca_file: Path | None) -> None:
        _patch_grpc()
        address = urlsplit(target.url)
        options = [*_UNLIMITED, *_OWN_CONNECTION]
        if address.scheme == "grpcs":
            trusted = ca_file.read_bytes() if ca_file else None
            credentials = grpc.ssl_channel_credentials(trusted)
            self._channel = grpc.secure_channel(address.netloc, credentials, options)
        else:
            self._channel = grpc.insecure_channel(address.netloc, options)
        # Bytes in, bytes out: building messages is not what is measured.
        self._infer = self._channel.unary_unary(INFER_METHOD)
        self._bodies = [payload.body for payload in target.payloads]
        self._checkers = _checkers(target)
        self._timeout_s = target.timeout_s
        self._metadata = tuple((k.lower(), v) for k, v in target.headers.items())

    def call(self, payload: int) -> Answer:
        try:
            body = self._infer(
                self._bodies[payload], timeout=self._timeout_s, metadata=self._metadata
            )
        except grpc.RpcError as error:
            return Answer(_outcome(error.code()), 0, 0, time.monotonic_ns())
        done_ns = time.monotonic_ns()
        right = self._checkers[payload].is_right(body, None)
        return Answer("ok" if right else "wrong_answer", 200, 0, done_ns)

    def close(self) -> None:
        self._channel.close()


def _outcome(code: grpc.StatusCode) -> str:
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return "timeout"
    if code in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
        return "connection_error"
    return "client_fault_4xx" if code in _CLIENT_FAULTS else "server_fault_5xx"


@cache
def _patch_grpc() -> None:
    """Without it one blocking call holds up every user of the process."""
    init_gevent()


def _checkers(target: Target) -> Sequence[ReplyChecker]:
    return [ReplyChecker(p, values_every=target.values_every) for p in target.payloads]
