"""The ONNX Runtime server as a process: right answers, clean refusals, nothing lost at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import onnx
import pytest
import requests
from onnx import TensorProto, helper
from tritonclient import http as triton

from serving.backends.base import ServePlan
from serving.backends.onnxruntime.launch import BACKEND
from serving.models.repository import Model
from serving.process import RunningProcess, free_port, wait_until
from serving.protocol import HEADER_LENGTH, Array, Tensor, encode_request
from serving.session import open_session
from tests.sample_models import write_tiny
from tests.server_process import Server, serve

BODY_LIMIT = 100_000


@pytest.fixture(scope="module")
def server(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("server")
    with serve(tiny, folder, "--body-limit", str(BODY_LIMIT)) as running:
        yield running


def rows(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, 64)).astype(np.float32)


def expect_right(server: Server, tiny: Model) -> None:
    status, answer = server.infer(rows(1))
    assert status == 200
    np.testing.assert_allclose(answer, open_session(tiny).run({"x": rows(1)})["y"], atol=1e-6)


def test_answers_equal_the_session_row_by_row_and_batched(server: Server, tiny: Model) -> None:
    session = open_session(tiny)
    array = rows(8)
    together = session.run({"x": array})["y"]
    for binary in (True, False):
        np.testing.assert_allclose(server.infer(array, binary=binary)[1], together, atol=1e-6)
        for n in range(8):
            alone = server.infer(array[n : n + 1], binary=binary)[1]
            np.testing.assert_allclose(alone, together[n : n + 1], atol=1e-6)


def test_sixteen_clients_each_get_their_own_rows(server: Server, tiny: Model) -> None:
    session = open_session(tiny)
    arrays = [rows(1 + n % 4, seed=n) for n in range(160)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(server.infer, arrays))
    for array, (status, answer) in zip(arrays, answers, strict=True):
        assert status == 200
        np.testing.assert_allclose(answer, session.run({"x": array})["y"], atol=1e-6)


def test_plain_requests_and_tritonclient_agree(server: Server) -> None:
    array = rows(2)
    item = {"name": "x", "datatype": "FP32", "shape": [2, 64], "data": array.tolist()}
    reply = requests.post(
        f"{server.url}/v2/models/tiny/versions/1/infer",
        json={"inputs": [item], "id": "a"},
        timeout=20,
    ).json()
    assert (reply["id"], reply["model_name"], reply["model_version"]) == ("a", "tiny", "1")
    tensor = triton.InferInput("x", [2, 64], "FP32")
    tensor.set_data_from_numpy(array)
    client = triton.InferenceServerClient(urlsplit(server.url).netloc)
    answer = client.infer("tiny", [tensor], model_version="1").as_numpy("y")
    described = client.get_model_config("tiny")
    client.close()
    np.testing.assert_allclose(answer.ravel(), reply["outputs"][0]["data"], atol=1e-6)
    assert described["max_batch_size"] == 8
    assert described["instance_group"][0]["kind"] == "KIND_CPU"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/v2/health/live", 200),
        ("HEAD", "/v2/health/ready", 200),
        ("GET", "/v2", 200),
        ("GET", "/v2/models/tiny/versions/1", 200),
        ("GET", "/v2/models/tiny/versions/1/ready", 200),
        ("GET", "/v2/models/tiny/versions/2/ready", 404),
        ("POST", "/v2/models/other/infer", 404),
        ("POST", "/v2/models/tiny/versions/2/infer", 404),
        ("GET", "/nothing", 404),
        ("GET", "/v2/models/tiny/infer", 405),
        ("PUT", "/v2/models/tiny/infer", 405),
        ("POST", "/v2/health/ready", 405),
    ],
)
def test_paths_and_methods(server: Server, method: str, path: str, status: int) -> None:
    found, content, headers = server.send(method, path)
    assert found == status
    if status >= 400:
        assert json.loads(content)["error"]
    if status == 405:
        assert headers["allow"] in ("GET", "POST")


def test_malformed_requests_are_4xx_and_the_next_is_right(server: Server, tiny: Model) -> None:
    good, length = encode_request([Tensor.of("x", rows(1))])
    assert length is not None
    header, blob = good[:length], good[length:]
    deep = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,64],"data":'
    deep += b"[" * 1000 + b"]" * 1000 + b"}]}"
    for body, told in [
        (good, None),
        (good, str(len(good))),
        (good, str(len(good) + 1)),
        (good, "-1"),
        (good, "1e2"),
        (good, "9" * 5000),
        (good[:-4], str(length)),
        (good + b"1234", str(length)),
        (header.replace(b"256", b"252") + blob, str(length)),
        (header.replace(b"[1,64]", b"[0,64]") + blob, str(length)),
        (header.replace(b"[1,64]", b"[1,-1]") + blob, str(length)),
        (deep, None),
        (b"", None),
        (b"\x1f\x8b\x08", None),
    ]:
        headers = {} if told is None else {HEADER_LENGTH: told}
        status, content, _ = server.send("POST", "/v2/models/tiny/infer", body, headers)
        assert status == 400, (body[:200], told, content)
        assert json.loads(content)["error"]
        expect_right(server, tiny)


def chunks(size: int) -> Iterator[bytes]:
    for _ in range(size // 1000):
        yield b" " * 1000


def test_a_body_above_the_limit_is_413_with_and_without_its_length(
    server: Server, tiny: Model
) -> None:
    url = f"{server.url}/v2/models/tiny/infer"
    large = 30 * BODY_LIMIT
    for data in (b" " * (BODY_LIMIT + 1), b" " * large, chunks(large)):
        reply = requests.post(url, data=data, timeout=20)
        assert reply.status_code == 413
        assert str(BODY_LIMIT) in reply.json()["error"]
    expect_right(server, tiny)


def test_a_chunked_body_is_read_whole(server: Server) -> None:
    body, length = encode_request([Tensor.of("x", rows(3))])
    reply = requests.post(
        f"{server.url}/v2/models/tiny/infer",
        data=iter([body[:50], body[50:]]),
        headers={HEADER_LENGTH: str(length)},
        timeout=20,
    )
    assert reply.status_code == 200


def test_metrics_count_requests_by_outcome(server: Server) -> None:
    before = {
        outcome: server.metric(f'infersweep_requests_total{{model="tiny",outcome="{outcome}"')
        for outcome in ("ok", "client_fault")
    }
    server.infer(rows(1))
    server.infer(rows(9))
    for outcome, count in before.items():
        name = f'infersweep_requests_total{{model="tiny",outcome="{outcome}"'
        assert server.metric(name) == count + 1
    assert server.metric("infersweep_batch_rows_count") >= 1
    assert server.metric("infersweep_in_flight") == 0


def test_what_is_not_finite_travels_as_binary_only(tmp_path: Path) -> None:
    """The logarithm of [-1, 0, 1] has NaN and minus infinity."""
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["batch", 3]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Log", ["x"], ["y"])], "log", values[:1], values[1:]
    )
    (tmp_path / "log" / "1").mkdir(parents=True)
    opset = [helper.make_opsetid("", 17)]
    onnx.save(
        helper.make_model(graph, opset_imports=opset, ir_version=8),
        tmp_path / "log" / "1" / "model.onnx",
    )
    # The axis is free here and fixed in the graph, so that the graph itself must refuse.
    (tmp_path / "log" / "config.pbtxt").write_text(
        'name: "log" backend: "onnxruntime" max_batch_size: 4\n'
        'input [ { name: "x" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
        'output [ { name: "y" data_type: TYPE_FP32 dims: [ -1 ] } ]\n'
    )
    given = np.array([[-1, 0, 1]], np.float32)
    with serve(Model(tmp_path, "log"), tmp_path) as server:
        status, answer = server.infer(given, model="log")
        assert status == 200
        np.testing.assert_array_equal(answer, np.array([[np.nan, -np.inf, 0]], np.float32))
        status, told = server.infer(given, model="log", binary=False)
        assert status == 400
        assert "binary" in str(told)
        status, told = server.infer(np.ones((1, 4), np.float32), model="log")
        assert status == 400
        assert "refuses" in str(told)


def test_sigterm_answers_what_is_in_flight_and_leaves_with_zero(tmp_path: Path) -> None:
    """The batcher waits two seconds for company, so that the requests are surely in flight."""
    model = write_tiny(tmp_path)
    config = model.folder / "config.pbtxt"
    config.write_text(config.read_text().replace("microseconds: 0", f"microseconds: {2_000_000}"))
    with serve(model, tmp_path) as server, ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(server.infer, rows(1, seed=n)) for n in range(3)]
        wait_until(
            lambda: server.metric("infersweep_in_flight{") == 3,
            deadline_s=2,
            process=server.process,
            what="requests",
            poll_s=0.01,
        )
        report = server.process.stop()
        assert (report.returncode, report.killed) == (0, False)
        session = open_session(model)
        for n, future in enumerate(futures):
            status, answer = future.result(20)
            assert status == 200
            right = session.run({"x": rows(1, seed=n)})["y"]
            np.testing.assert_allclose(answer, right, atol=1e-6)


def test_a_full_queue_is_503_with_the_time_to_come_back(tmp_path: Path) -> None:
    model = write_tiny(tmp_path)
    config = model.folder / "config.pbtxt"
    config.write_text(config.read_text().replace("microseconds: 0", f"microseconds: {1_000_000}"))
    with serve(model, tmp_path, "--queue-limit", "1") as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.infer, rows(1))
        while server.metric("infersweep_in_flight{") != 1:
            time.sleep(0.01)
        body, length = encode_request([Tensor.of("x", rows(1))])
        headers = {HEADER_LENGTH: str(length)}
        status, content, told = server.send("POST", "/v2/models/tiny/infer", body, headers)
        assert (status, told["retry-after"]) == (503, "1")
        assert "waiting" in json.loads(content)["error"]
        assert first.result(20)[0] == 200


def test_a_taken_port_and_a_missing_model_end_with_a_sentence(
    server: Server, tiny: Model, tmp_path: Path
) -> None:
    port = urlsplit(server.url).port or 0
    for model, at, code in [
        (tiny, port, 3),
        (Model(tiny.root, "nobody"), free_port(), 5),
    ]:
        plan = ServePlan("onnxruntime", "", tiny, (), at, tmp_path)
        argv = [part if part != "tiny" else model.name for part in BACKEND.launch(plan).argv]
        with RunningProcess(argv, log=tmp_path / f"{code}.log") as process:
            assert process.wait(20) == code
            assert "Traceback" not in process.log_tail(50)
