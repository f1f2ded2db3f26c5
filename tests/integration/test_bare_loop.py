"""What the serving benchmark measures against: the bare loop."""

from __future__ import annotations

import http.client
import socket
from pathlib import Path

import numpy as np

from benchmarks.cases import Case, bare_loop
from tests.sample_models import write_tiny


def test_the_bare_loop_answers_request_after_request(tmp_path: Path) -> None:
    case = Case.of(write_tiny(tmp_path / "tiny"), tmp_path / "case")
    expected = case.reference.answers[0]["y"]
    with bare_loop(case) as (url, _):
        connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=10)
        for _ in range(3):
            connection.request("POST", "/", case.payload.body, case.payload.headers)
            reply = connection.getresponse()
            assert reply.status == 200
            got = np.frombuffer(reply.read(), np.float32)
            assert np.allclose(got, expected[0], 1e-5, 1e-6)
        connection.close()


def test_the_bare_loop_waits_for_the_rest_of_a_request(tmp_path: Path) -> None:
    case = Case.of(write_tiny(tmp_path / "tiny"), tmp_path / "case")
    body = case.payload.body
    head = b"POST / HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % len(body)
    with bare_loop(case) as (url, _):
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        with socket.create_connection(address, timeout=10) as first:
            first.sendall(head + body[:100])
            # Another client is answered meanwhile, so the loop has seen the first one's part.
            with socket.create_connection(address, timeout=10) as second:
                second.sendall(head + body)
                whole = second.recv(4096)
            first.sendall(body[100:])
            assert first.recv(4096) == whole
