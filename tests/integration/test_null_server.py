"""The null server: zeros of the right shape, and as strict as the servers it stands beside."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from tritonclient import http as triton

from serving.backends.base import ServePlan
from serving.backends.null import BACKEND
from serving.backends.null.__main__ import zeros
from serving.models.config import ModelConfig, TensorSpec
from serving.models.repository import Model
from serving.process import RunningProcess, free_port, wait_until
from serving.protocol import HEADER_LENGTH, Tensor, decode_response, encode_request

INFER = "/v2/models/tiny/infer"


@pytest.fixture(scope="module")
def address(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("null")
    launch = BACKEND.launch(ServePlan("null", "", tiny, (), free_port(), folder))
    with RunningProcess(launch.argv, log=folder / "server.log") as process:
        netloc = urlsplit(launch.url).netloc
        wait_until(
            lambda: answers(netloc), deadline_s=30, process=process, what="null", poll_s=0.02
        )
        yield netloc
        assert process.stop().returncode == 0


def answers(netloc: str) -> bool:
    try:
        return send(netloc, "GET", "/v2/health/ready")[0] == 200
    except OSError:
        return False


def send(
    netloc: str, method: str, path: str, body: bytes = b"", length: str | None = None
) -> tuple[int, bytes, str | None]:
    connection = http.client.HTTPConnection(netloc, timeout=20)
    connection.request(method, path, body, {} if length is None else {HEADER_LENGTH: length})
    reply = connection.getresponse()
    content = reply.read()
    connection.close()
    return reply.status, content, reply.getheader(HEADER_LENGTH)


@pytest.mark.parametrize("count", [1, 8])
def test_zeros_of_the_right_shape_through_tritonclient(address: str, count: int) -> None:
    client = triton.InferenceServerClient(address)
    for binary in (True, False, True):
        tensor = triton.InferInput("x", [count, 64], "FP32")
        tensor.set_data_from_numpy(np.ones((count, 64), np.float32), binary_data=binary)
        wanted = [triton.InferRequestedOutput("y", binary_data=binary)]
        answer = client.infer("tiny", [tensor], outputs=wanted).as_numpy("y")
        np.testing.assert_array_equal(answer, np.zeros((count, 10), np.float32))
    client.close()


def test_a_remembered_reply_does_not_excuse_a_cut_body(address: str) -> None:
    body, length = encode_request([Tensor.of("x", np.ones((1, 64), np.float32))])
    for _ in range(2):
        status, content, told = send(address, "POST", INFER, body, str(length))
        assert status == 200
        assert decode_response(content, int(told or 0))["y"].array.shape == (1, 10)
        for wrong, header in [
            (body[:-4], str(length)),
            (body + b"1234", str(length)),
            (body, None),
            (body, "x"),
            (body, str(len(body) + 1)),
        ]:
            status, content, _ = send(address, "POST", INFER, wrong, header)
            assert status == 400
            assert json.loads(content)["error"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2", 200),
        ("HEAD", "/v2", 200),
        ("GET", "/v2/models/tiny/versions/1", 200),
        ("GET", "/v2/models/tiny/versions/1/ready", 200),
        ("GET", "/v2/models/tiny/versions/2/ready", 404),
        ("POST", "/v2/models/other/infer", 404),
        ("GET", INFER, 405),
        ("POST", "/v2", 405),
    ],
)
def test_paths_and_methods(address: str, method: str, path: str, status: int) -> None:
    assert send(address, method, path)[0] == status


def test_what_is_not_http_is_told_and_cut(address: str) -> None:
    host, _, port = address.partition(":")
    with socket.create_connection((host, int(port)), timeout=20) as raw:
        raw.sendall(b"good day\r\n\r\n")
        assert raw.recv(4096).startswith(b"HTTP/1.1 400 ")


def test_free_axes_follow_the_input() -> None:
    spec = (TensorSpec("y", "INT64", (-1, 3, -1)), TensorSpec("s", "BYTES", (2,)))
    config = ModelConfig("m", "onnxruntime", 4, (TensorSpec("x", "FP32", (-1,)),), spec)
    y, s = zeros(config, {"x": np.ones((2, 7), np.float32)})
    assert (y.array.shape, y.array.dtype) == ((2, 7, 3, 1), np.int64)
    assert s.array.tolist() == [[b"", b""], [b"", b""]]


def test_a_taken_port_ends_with_a_sentence(address: str, tiny: Model, tmp_path: Path) -> None:
    plan = ServePlan("null", "", tiny, (), int(address.partition(":")[2]), tmp_path)
    with RunningProcess(BACKEND.launch(plan).argv, log=tmp_path / "log") as process:
        assert process.wait(20) == 3
        assert "Traceback" not in process.log_tail(50)
