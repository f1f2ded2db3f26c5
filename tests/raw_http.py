"""HTTP by hand, for what no client library would send or leave undone."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from serving.protocol import HEADER_LENGTH, Array, Tensor, decode_response, encode_request
from tests.http_wire import Answer, chunked, request, split_replies
from tests.server_process import Server

TIMEOUT_S = 20.0
"""A connection that stands still for longer than any limit of these tests fails them."""


@contextmanager
def dial(server: Server) -> Iterator[socket.socket]:
    address = urlsplit(server.url)
    with socket.create_connection((address.hostname, address.port), TIMEOUT_S) as client:
        yield client


def receive_all(client: socket.socket) -> bytes:
    """What comes until the server closes; a reset counts as closing."""
    received = b""
    try:
        while data := client.recv(1 << 16):
            received += data
    except ConnectionError:
        pass
    return received


def exchange(server: Server, data: bytes, *methods: str) -> list[Answer]:
    """Everything that is answered to ``data`` until the server closes the connection."""
    with dial(server) as client:
        client.sendall(data)
        return list(split_replies(receive_all(client), methods))


def receive_one(client: socket.socket) -> Answer:
    """One reply with a content length; the connection stays."""
    received = b""
    while b"\r\n\r\n" not in received:
        received += client.recv(1 << 16)
    head, _, body = received.partition(b"\r\n\r\n")
    (length,) = (int(line[15:]) for line in head.split(b"\r\n") if line[:15] == b"content-length:")
    while len(body) < length:
        body += client.recv(1 << 16)
    (answer,) = split_replies(head + b"\r\n\r\n" + body)
    return answer


def infer_request(array: Array, *fields: str, model: str = "tiny", chunk_bytes: int = 0) -> bytes:
    """Binary data both ways; in chunks where their size is given."""
    body, length = encode_request([Tensor.of("x", array)])
    path, fields = f"/v2/models/{model}/infer", (f"{HEADER_LENGTH}: {length}", *fields)
    if not chunk_bytes:
        return request("POST", path, body, *fields)
    chunks = (body[at : at + chunk_bytes] for at in range(0, len(body), chunk_bytes))
    return chunked(path, chunks, *fields, trailer=b"X-Sum: 1\r\n")


def output_of(answer: Answer) -> Array:
    assert answer.status == 200, answer.body
    length = int(answer.headers[HEADER_LENGTH.lower()])
    return decode_response(answer.body, length)["y"].array
