"""Clients that are slow, silent, many, or gone: none hangs, none takes the server from another."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import requests
from tritonclient import http as triton

from serving.models.repository import Model
from serving.process import wait_until
from serving.protocol import Array
from serving.session import Session, open_session
from tests.http_wire import request, split_replies
from tests.memory import PeakMemory
from tests.raw_http import dial, exchange, infer_request, output_of, receive_all, receive_one
from tests.sample_models import write_echo, write_tiny
from tests.server_process import Server, serve

STALL_S, IDLE_S, CONNECTIONS = 1, 2, 12
GOODBYE = "Connection: close"
HEALTH = request("GET", "/v2/health/live")


def rows(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, 64)).astype(np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    root = tmp_path_factory.mktemp("repository")
    write_echo(root)
    return write_tiny(root)


@pytest.fixture(scope="module")
def session(model: Model) -> Session:
    return open_session(model)


@pytest.fixture(scope="module")
def server(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    limits = {"stall": STALL_S, "idle": IDLE_S, "connections": CONNECTIONS}
    flags = [f"--{name}-limit={value}" for name, value in limits.items()]
    folder = tmp_path_factory.mktemp("server")
    with serve(model, folder, "--model", "echo", *flags) as running:
        yield running


@pytest.fixture(autouse=True)
def _still_right(server: Server, session: Session) -> Iterator[None]:
    """After each of these clients the next one gets its answer."""
    yield
    status, answer = server.infer(rows(2, seed=9))
    assert status == 200, answer
    np.testing.assert_allclose(answer, session.run({"x": rows(2, seed=9)})["y"], atol=1e-6)


PIPELINE = b"".join(
    [
        infer_request(rows(1, seed=1)),
        request("GET", "/nothing"),
        request("HEAD", "/v2"),
        infer_request(rows(3, seed=3), chunk_bytes=100),
        request("POST", "/v2/models/tiny/infer", b"no JSON"),
        infer_request(rows(2, seed=2), GOODBYE),
    ]
)
"""Of every framing; what they ask for differs, so that an answer tells its request."""


@pytest.mark.parametrize("piece", [1 << 20, 777, 11])
def test_pipelined_requests_get_their_own_answers_in_order(
    server: Server, session: Session, piece: int
) -> None:
    with dial(server) as client:
        for at in range(0, len(PIPELINE), piece):
            client.sendall(PIPELINE[at : at + piece])
        received = receive_all(client)
    answers = list(split_replies(received, ["POST", "GET", "HEAD", "POST", "POST", "POST"]))
    assert [answer.status for answer in answers] == [200, 404, 200, 200, 400, 200]
    for answer, seed in [(answers[0], 1), (answers[3], 3), (answers[5], 2)]:
        right = session.run({"x": rows(seed, seed=seed)})["y"]
        np.testing.assert_allclose(output_of(answer), right, atol=1e-6)


def test_a_refusal_leaves_nothing_for_the_next_request(server: Server) -> None:
    """What follows a doubtful request is dropped with the connection."""
    for head in (
        b"POST /v2 HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST /v2 HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nContent-Length: 5\r\n\r\n",
        b"GET /v2 HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\n\r\n",
        request("POST", "/v2/repository/index", b"", "Transfer-Encoding: chunked") + b"z\r\n",
    ):
        (answer,) = exchange(server, head + HEALTH)
        assert (answer.status, answer.headers["connection"]) == (400, "close")


def test_the_go_ahead_comes_before_the_body(server: Server, session: Session) -> None:
    head, _, body = infer_request(rows(1), "Expect: 100-continue").partition(b"\r\n\r\n")
    with dial(server) as client:
        client.sendall(head + b"\r\n\r\n")
        assert client.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        client.sendall(body)
        right = session.run({"x": rows(1)})["y"]
        np.testing.assert_allclose(output_of(receive_one(client)), right, atol=1e-6)


def test_a_client_that_ends_its_side_is_let_go(server: Server) -> None:
    for data in (HEALTH, infer_request(rows(1)), infer_request(rows(1))[:-5], b"GET", b""):
        with dial(server) as client:
            client.sendall(data)
            client.shutdown(socket.SHUT_WR)
            receive_all(client)
    server.wait_for("infersweep_in_flight{", 0)


def dribble(client: socket.socket, data: bytes, every_s: float) -> None:
    for n in range(len(data)):
        client.sendall(data[n : n + 1])
        time.sleep(every_s)


def slow_head(server: Server) -> bool:
    """Cut, although it never stands still."""
    with dial(server) as client:
        try:
            dribble(client, HEALTH, 0.2)
        except ConnectionError:
            return True
        return False


def slow_body(server: Server) -> bool:
    """Answered, although it takes longer than the limit for standing still."""
    data = infer_request(rows(1))
    with dial(server) as client:
        client.sendall(data[:-15])
        dribble(client, data[-15:], 0.2)
        return receive_one(client).status == 200


def silent_head(server: Server) -> bool:
    with dial(server) as client:
        client.sendall(HEALTH[:-2])
        return receive_all(client) == b""


def silent_body(server: Server) -> bool:
    with dial(server) as client:
        client.sendall(infer_request(rows(1))[:-1])
        return receive_all(client) == b""


def silent_chunks(server: Server) -> bool:
    with dial(server) as client:
        client.sendall(request("POST", "/v2", b"", "Transfer-Encoding: chunked") + b"1\r\n")
        return b"HTTP/1.1 405 " in receive_all(client)


def idle(server: Server) -> bool:
    with dial(server) as client:
        client.sendall(HEALTH)
        receive_one(client)
        return receive_all(client) == b""


def never_reading(server: Server) -> bool:
    """Asks for 200 replies of 1 MB."""
    asking = infer_request(np.zeros(1 << 18, np.float32), model="echo")
    with dial(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        try:
            for _ in range(200):
                client.sendall(asking)
        except ConnectionError:
            return True
        return False


SLOW = (slow_head, slow_body, silent_head, silent_body, silent_chunks, idle, never_reading)


def test_slow_clients_are_let_be_while_they_move_and_cut_when_they_stand_still(
    server: Server,
) -> None:
    """All at once, so that the test takes as long as the slowest of them."""
    with ThreadPoolExecutor(len(SLOW)) as pool, PeakMemory(server.worker.pid) as peak:
        outcomes = [pool.submit(scene, server) for scene in SLOW]
        assert server.infer(rows(1))[0] == 200
        ended = {scene.__name__: one.result(60) for scene, one in zip(SLOW, outcomes, strict=True)}
    assert ended == {scene.__name__: True for scene in SLOW}
    assert peak.growth_bytes < 40 << 20


def test_one_client_too_many_is_told_to_come_back(server: Server) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(dial(server)) for _ in range(CONNECTIONS)]
        for client in clients:
            client.sendall(HEALTH)
            assert receive_one(client).status == 200
        (answer,) = exchange(server, b"")
        assert (answer.status, answer.headers["retry-after"]) == (503, "1")
        clients[0].sendall(HEALTH)
        assert receive_one(clients[0]).status == 200
    wait_until(server.ready, deadline_s=5, process=server.process, what="room", poll_s=0.02)


def test_clients_reconnect_when_an_idle_connection_was_closed(server: Server) -> None:
    """The server closes in an orderly way, so that libraries see it before they send."""
    tensor = triton.InferInput("x", [1, 64], "FP32")
    tensor.set_data_from_numpy(rows(1))
    with requests.Session() as browser:
        client = triton.InferenceServerClient(urlsplit(server.url).netloc)
        for wait_s in (IDLE_S + 2, 0):
            assert browser.get(f"{server.url}/v2", timeout=20).status_code == 200
            assert client.infer("tiny", [tensor]).as_numpy("y").shape == (1, 10)
            time.sleep(wait_s)
        client.close()


def test_a_reply_that_is_still_being_read_outlives_sigterm(model: Model, tmp_path: Path) -> None:
    array = np.arange(6 << 20, dtype=np.float32)
    with serve(Model(model.root, "echo"), tmp_path) as server, dial(server) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        client.sendall(infer_request(array, model="echo"))
        begun = client.recv(1000)
        server.worker.send_signal(signal.SIGTERM)
        wait_until(
            lambda: not server.ready(), deadline_s=5, process=None, what="stopping", poll_s=0.02
        )
        time.sleep(0.3)
        (answer,) = split_replies(begun + receive_all(client))
        np.testing.assert_array_equal(output_of(answer), array)
        assert server.process.wait(10) == 0
        assert "cut 1 " not in server.process.log_tail(50)


def test_a_process_without_files_left_keeps_listening(model: Model, tmp_path: Path) -> None:
    with serve(model, tmp_path) as server:
        used = server.worker.num_fds()
        limit = f"--nofile={used + 10}:{used + 10}"
        subprocess.run(["prlimit", f"--pid={server.worker.pid}", limit], check=True)
        with ExitStack() as stack:
            for _ in range(50):
                stack.enter_context(dial(server)).sendall(HEALTH)
        wait_until(server.ready, deadline_s=10, process=server.process, what="files", poll_s=0.05)
        assert server.infer(rows(1))[0] == 200
