"""The server's life: load, reload, unload, overload, crash, hang, drain."""

from __future__ import annotations

import http.client
import json
import os
import shutil
import signal
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
from tritonclient import grpc as rpc
from tritonclient import http as triton
from tritonclient.utils import InferenceServerException

from serving.models.repository import Model
from serving.process import RunningProcess, free_port, wait_until
from serving.protocol import HEADER_LENGTH, Array, Tensor, encode_request
from serving.session import open_session
from tests.awkward_models import write_dependent, write_heavy, write_slow
from tests.sample_models import write_tiny
from tests.server_process import Server, serve

RUNNING = "infersweep_in_flight{"


def rows(count: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal((count, 64)).astype(np.float32)


def steps(count: float) -> Array:
    return np.array([[count]], np.float32)


def index(server: Server) -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(server.send("POST", "/v2/repository/index")[1])
    return found


def add_version(model: Model, number: int, seed: int) -> None:
    """Another version appears at once, as a careful copy makes it."""
    made = write_tiny(model.root.parent / f"made-{number}", seed=seed)
    staged = model.root.parent / f"staged-{number}"
    shutil.copytree(made.folder / "1", staged)
    staged.rename(model.folder / str(number))


class Hammer:
    """Clients that ask without a pause and check each answer by the version that gave it."""

    def __init__(self, server: Server, right: dict[str, Array]) -> None:
        self._server = server
        self._right = right
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(4)
        self.answered: Counter[str] = Counter()
        self._futures: list[Future[None]] = []

    def __enter__(self) -> Hammer:
        self._futures = [self._pool.submit(self._ask) for _ in range(4)]
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        for future in self._futures:
            future.result(20)
        self._pool.shutdown()

    def _ask(self) -> None:
        client = triton.InferenceServerClient(urlsplit(self._server.url).netloc)
        tensor = triton.InferInput("x", [1, 64], "FP32")
        tensor.set_data_from_numpy(rows(1))
        while not self._stop.is_set():
            result = client.infer("tiny", [tensor])
            version = result.get_response()["model_version"]
            np.testing.assert_allclose(result.as_numpy("y"), self._right[version], atol=1e-6)
            self.answered[version] += 1
        client.close()

    def wait_for(self, version: str, count: int) -> None:
        wait_until(
            lambda: self.answered[version] >= count,
            deadline_s=20,
            process=self._server.process,
            what=f"{count} answers of version {version}",
            poll_s=0.01,
        )


def test_a_new_version_takes_over_under_load_without_a_failed_or_wrong_answer(
    tmp_path: Path,
) -> None:
    model = write_tiny(tmp_path / "repository", seed=7)
    right = {"1": open_session(model).run({"x": rows(1)})["y"]}
    other = write_tiny(tmp_path / "other", seed=8)
    right["2"] = open_session(other).run({"x": rows(1)})["y"]
    assert np.abs(right["1"] - right["2"]).max() > 0.1
    with serve(model, tmp_path, "--poll", "0.1") as server, Hammer(server, right) as hammer:
        hammer.wait_for("1", 50)
        add_version(model, 2, seed=8)
        hammer.wait_for("2", 50)
        shutil.rmtree(model.folder / "2")
        before = hammer.answered["1"]
        hammer.wait_for("1", before + 50)
        assert [entry["version"] for entry in index(server)] == ["1"]


def test_a_broken_version_leaves_the_old_one_serving(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "repository")
    with serve(model, tmp_path) as server:
        (model.folder / "2").mkdir()
        (model.folder / "2" / "model.onnx").write_bytes(b"this is no model")
        status, content, _ = server.send("POST", "/v2/repository/models/tiny/load")
        assert status == 400
        assert "cannot be loaded" in json.loads(content)["error"]
        assert server.infer(rows(1))[0] == 200
        assert [(e["version"], e["state"]) for e in index(server)] == [("1", "READY")]


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", ["3"]),
        ("version_policy { latest { num_versions: 2 } }", ["2", "3"]),
        ("version_policy { all { } }", ["1", "2", "3"]),
        ("version_policy { specific { versions: [ 1, 3 ] } }", ["1", "3"]),
    ],
)
def test_the_version_policy_says_what_is_served(
    tmp_path: Path, policy: str, served: list[str]
) -> None:
    model = write_tiny(tmp_path / "repository")
    for number in (2, 3):
        add_version(model, number, seed=number)
    config = model.folder / "config.pbtxt"
    config.write_text(config.read_text() + policy)
    with serve(model, tmp_path) as server:
        assert [entry["version"] for entry in index(server)] == served
        client = triton.InferenceServerClient(urlsplit(server.url).netloc)
        assert client.get_model_metadata("tiny")["versions"] == served
        ready = [number for number in "123" if client.is_model_ready("tiny", number)]
        client.close()
        assert ready == served


def test_unloading_frees_the_memory(tmp_path: Path) -> None:
    root = tmp_path / "repository"
    model = write_tiny(root)
    write_heavy(root, megabytes=128)
    with serve(model, tmp_path) as server:
        asked = np.zeros((1, 1000), np.float32)
        empty = server.worker.memory_info().rss
        for _ in range(2):
            assert server.send("POST", "/v2/repository/models/heavy/load")[0] == 200
            assert server.infer(asked, model="heavy")[0] == 200
            full = server.worker.memory_info().rss
            assert server.send("POST", "/v2/repository/models/heavy/unload")[0] == 200
            assert server.infer(asked, model="heavy")[0] == 404
            freed = server.worker.memory_info().rss
            assert full - empty > 100e6
            assert freed - empty < 0.25 * (full - empty)
        assert server.infer(rows(1))[0] == 200


def test_rows_that_depend_on_each_other_are_served_apart_and_it_is_said(tmp_path: Path) -> None:
    model = write_dependent(tmp_path / "repository")
    with serve(model, tmp_path) as server, ThreadPoolExecutor(8) as pool:
        arrays = [np.full((1, 3), float(n), np.float32) for n in range(40)]
        answers = pool.map(lambda array: server.infer(array, model="dependent"), arrays)
        for status, answer in answers:
            assert status == 200
            np.testing.assert_array_equal(answer, np.zeros((1, 3)))
        (entry,) = index(server)
        assert "with the rows beside it" in entry["reason"]
        assert "unbatched" in server.process.log_tail(20)


def test_warm_up_comes_before_ready_and_a_wrong_one_ends_the_start(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "repository")
    config = model.folder / "config.pbtxt"
    plain = config.read_text()
    warm_up = (
        'model_warmup [ { name: "full" batch_size: 8 count: 3\n'
        '  inputs { key: "x" value { data_type: TYPE_FP32 dims: [ 64 ] random_data: true } } } ]'
    )
    config.write_text(plain + warm_up)
    with serve(model, tmp_path) as server:
        assert server.infer(rows(1))[0] == 200
    config.write_text(plain + warm_up.replace("64", "63"))
    _refuses_to_start(model, tmp_path, "warm-up 'full'")


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ("sequence_batching { }", "sequence_batching"),
        ("response_cache { enable: true }", "response_cache"),
        ('parameters { key: "check.x" value { string_value: "9..1" } }', "check.x"),
        ('parameters { key: "check.z" value { string_value: "finite" } }', "check.z"),
    ],
)
def test_what_this_server_does_not_know_is_refused_not_ignored(
    tmp_path: Path, more: str, told: str
) -> None:
    model = write_tiny(tmp_path / "repository")
    config = model.folder / "config.pbtxt"
    text = config.read_text()
    if told == "sequence_batching":
        text = text.replace("dynamic_batching { max_queue_delay_microseconds: 0 }", "")
    config.write_text(text + more)
    _refuses_to_start(model, tmp_path, told)


def _refuses_to_start(model: Model, folder: Path, told: str) -> None:
    from serving.backends.base import ServePlan
    from serving.backends.onnxruntime.launch import BACKEND

    # The launch itself reads the configuration, which would refuse before the server can.
    whole = write_tiny(folder / "whole")
    argv = BACKEND.launch(ServePlan("onnxruntime", "", whole, (), free_port(), folder)).argv
    argv = tuple(str(model.root) if part == str(whole.root) else part for part in argv)
    with RunningProcess(argv, log=folder / "refused.log") as process:
        assert process.wait(20) == 5
        assert told in process.log_tail(5)
        assert "Traceback" not in process.log_tail(50)


def test_values_that_would_poison_an_answer_are_refused_where_that_is_asked_for(
    tmp_path: Path,
) -> None:
    model = write_tiny(tmp_path / "repository")
    config = model.folder / "config.pbtxt"
    plain = config.read_text()
    poisoned = rows(1)
    poisoned[0, 5] = np.nan
    large = np.full((1, 64), 300.0, np.float32)
    for check, refused in [("", []), ("finite", [poisoned]), ("-255..255", [poisoned, large])]:
        key = f'parameters {{ key: "check.x" value {{ string_value: "{check}" }} }}'
        config.write_text(plain + (key if check else ""))
        with serve(model, tmp_path) as server:
            for array in (poisoned, large, rows(1)):
                expected = 400 if any(array is one for one in refused) else 200
                assert server.infer(array)[0] == expected, check


def test_a_full_queue_refuses_the_rest_and_the_accepted_are_right(tmp_path: Path) -> None:
    policy = "dynamic_batching { default_queue_policy { max_queue_size: 3 } }"
    model = write_slow(tmp_path / "repository", more=policy)
    with serve(model, tmp_path) as server, ThreadPoolExecutor(24) as pool:
        first = pool.submit(server.infer, steps(400), model="slow")
        server.wait_for(RUNNING, 1)
        others = [pool.submit(server.infer, steps(1), model="slow") for _ in range(20)]
        refused = [answer for answer in (one.result(30) for one in others) if answer[0] != 200]
        assert len(refused) == 17
        assert {status for status, _ in refused} == {503}
        assert first.result(30)[0] == 200
        assert server.metric('infersweep_requests_total{model="slow",outcome="refused"') == 17


def test_a_client_that_went_away_costs_no_inference(tmp_path: Path) -> None:
    model = write_slow(tmp_path / "repository")
    with serve(model, tmp_path) as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.infer, steps(600), model="slow")
        server.wait_for(RUNNING, 1)
        body, length = encode_request([Tensor.of("x", steps(600))])
        connections = []
        for _ in range(5):
            connection = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=20)
            connection.request("POST", "/v2/models/slow/infer", body, {HEADER_LENGTH: str(length)})
            connections.append(connection)
        server.wait_for(RUNNING, 6)
        for connection in connections:
            connection.close()
        server.wait_for(RUNNING, 1)
        assert first.result(30)[0] == 200
        assert server.metric("infersweep_batch_rows_count") == 1
        assert server.metric('infersweep_requests_total{model="slow",outcome="cancelled"') == 5


def test_a_call_that_was_given_up_costs_no_inference(tmp_path: Path) -> None:
    model = write_slow(tmp_path / "repository")
    with serve(model, tmp_path) as server, ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.infer, steps(600), model="slow")
        server.wait_for(RUNNING, 1)
        client = rpc.InferenceServerClient(urlsplit(server.grpc_url).netloc)
        tensor = rpc.InferInput("x", [1, 1], "FP32")
        tensor.set_data_from_numpy(steps(600))
        with pytest.raises(InferenceServerException, match="Deadline"):
            client.infer("slow", [tensor], client_timeout=0.05)
        client.close()
        server.wait_for(RUNNING, 1)
        assert first.result(30)[0] == 200
        assert server.metric("infersweep_batch_rows_count") == 1
        assert server.metric('infersweep_requests_total{model="slow",outcome="cancelled"') == 1


def test_while_the_model_hangs_others_are_told_in_time_and_the_server_can_stop(
    tmp_path: Path,
) -> None:
    policy = "dynamic_batching { default_queue_policy { default_timeout_microseconds: 100000 } }"
    model = write_slow(tmp_path / "repository", more=policy)
    with serve(model, tmp_path, "--drain-limit", "1") as server, ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(server.infer, steps(1e9), model="slow")
        server.wait_for(RUNNING, 1)
        status, told = server.infer(steps(1), model="slow")
        assert (status, "longer than it may" in str(told)) == (503, True)
        assert server.send("GET", "/v2/health/live")[0] == 200
        report = server.process.stop()
        assert not report.killed
        assert "cut 1 requests" in server.process.log_tail(20)
        with pytest.raises((OSError, http.client.HTTPException)):
            stuck.result(20)


def test_a_killed_worker_is_replaced_and_its_requests_end_in_an_error(tmp_path: Path) -> None:
    model = write_slow(tmp_path / "repository")
    with serve(model, tmp_path) as server, ThreadPoolExecutor(1) as pool:
        stuck = pool.submit(server.infer, steps(1e9), model="slow")
        server.wait_for(RUNNING, 1)
        assert server.metric("infersweep_worker_restarts_total") == 0
        killed = server.worker
        os.kill(killed.pid, signal.SIGKILL)
        with pytest.raises((OSError, http.client.HTTPException)):
            stuck.result(20)
        _until(server.ready, server)
        assert server.worker.pid != killed.pid
        assert server.infer(steps(1), model="slow")[0] == 200
        assert "killed by SIGKILL" in server.process.log_tail(20)
        assert server.metric("infersweep_worker_restarts_total") == 1


def test_the_worker_ends_when_its_supervisor_is_killed(tmp_path: Path) -> None:
    with serve(write_tiny(tmp_path / "repository"), tmp_path) as server:
        worker = server.worker
        os.kill(server.process.pid, signal.SIGKILL)
        _until(lambda: not worker.is_running() or worker.status() == "zombie", None)


def test_trace_ids_come_back(tmp_path: Path) -> None:
    model = write_tiny(tmp_path / "repository")
    traced = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
    body, length = encode_request([Tensor.of("x", rows(1))])
    with serve(model, tmp_path) as server:
        headers = {HEADER_LENGTH: str(length), **traced, "X-Request-Id": "flight-7"}
        _, _, told = server.send("POST", "/v2/models/tiny/infer", body, headers)
        assert told["traceparent"] == traced["traceparent"]
        assert told["x-request-id"] == "flight-7"
        assert "traceparent" not in server.send("GET", "/v2")[2]


def _until(condition: Callable[[], bool], server: Server | None) -> None:
    process = server.process if server else None
    wait_until(condition, deadline_s=20, process=process, what="the change", poll_s=0.02)
