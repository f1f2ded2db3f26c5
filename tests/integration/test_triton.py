"""The real Triton, from whatever launcher this machine has, against a session in this process."""

from __future__ import annotations

import os
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.http as client
from onnx import TensorProto, helper, numpy_helper
from tritonclient.utils import InferenceServerException

from serving.backends.base import Launch, ServePlan
from serving.backends.triton import BACKEND, wheel
from serving.backends.triton.wheel import ensure_triton, installed_onnxruntime
from serving.errors import ServerError
from serving.models.repository import Model
from serving.process import RunningProcess, free_port
from serving.protocol import Array
from serving.readiness import wait_ready
from tests.sample_models import Port, write_model

PICKY_CONFIG = """\
name: "picky"
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "index" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "value" data_type: TYPE_FP32 dims: [ 1 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
"""
WAITING = "dynamic_batching { max_queue_delay_microseconds: 200000 preferred_batch_size: [ 4 ] }\n"
TABLE = np.array([3.0, 1.0, 4.0, 1.5, 9.0], np.float32)


@dataclass(frozen=True)
class Serving:
    launch: Launch
    model: Model

    @property
    def address(self) -> str:
        return self.launch.url.removeprefix("http://")

    def ask(self, name: str, data: Array, datatype: str, output: str) -> Array:
        """One request on a connection of its own, with binary tensors both ways."""
        tensor = client.InferInput(name, list(data.shape), datatype)
        tensor.set_data_from_numpy(data)
        connection = client.InferenceServerClient(self.address)
        try:
            answer = connection.infer(self.model.name, [tensor]).as_numpy(output)
        finally:
            connection.close()
        assert answer is not None
        return np.array(answer)

    def executions(self, name: str) -> int:
        """How often the model ran, each time for one or several requests."""
        connection = client.InferenceServerClient(self.address)
        (counts,) = connection.get_inference_statistics(name)["model_stats"]
        connection.close()
        return int(counts["execution_count"])


@contextmanager
def serving(model: Model, folder: Path) -> Iterator[Serving]:
    cpu = min(os.sched_getaffinity(0))
    plan = ServePlan("triton", "", model, (cpu,), free_port(), folder)
    launch = BACKEND.launch(plan)
    log = folder / "triton.log"
    with RunningProcess(launch.argv, cpus=plan.cpus, env=launch.env, log=log) as process:
        wait_ready(
            launch.url,
            model.name,
            deadline_s=launch.ready_within_s,
            process=process,
            label="triton",
        )
        yield Serving(launch, model)
        assert not process.stop().killed


@pytest.fixture(scope="module")
def tiny_server(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    with serving(tiny, tmp_path_factory.mktemp("triton")) as server:
        yield server


@pytest.fixture(scope="module")
def reference(tiny: Model) -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(tiny.file), providers=["CPUExecutionProvider"])


@pytest.mark.parametrize("rows", [1, 3, 8])
def test_random_inputs_are_answered_as_the_reference_does(
    tiny_server: Serving, reference: onnxruntime.InferenceSession, rows: int
) -> None:
    rng = np.random.default_rng(rows)
    for _ in range(20):
        x = rng.standard_normal((rows, 64), np.float32)
        answer = tiny_server.ask("x", x, "FP32", "y")
        assert answer.shape == (rows, 10)
        np.testing.assert_allclose(answer, reference.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_concurrent_requests_get_each_their_own_answer(
    tiny_server: Serving, reference: onnxruntime.InferenceSession
) -> None:
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((1 + i % 3, 64), np.float32) for i in range(200)]
    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(lambda x: tiny_server.ask("x", x, "FP32", "y"), inputs))
    for x, answer in zip(inputs, answers, strict=True):
        np.testing.assert_allclose(answer, reference.run(None, {"x": x})[0], rtol=1e-5, atol=1e-6)


def test_facts_say_what_serves(tiny_server: Serving) -> None:
    facts = tiny_server.launch.facts
    connection = client.InferenceServerClient(tiny_server.address)
    stated = connection.get_server_metadata()["version"]
    connection.close()
    assert facts["launcher"]
    assert facts["onnxruntime backend"] in ("python-based (wheel)", "native")
    assert facts["server version"] == stated


def test_metrics_are_served(tiny_server: Serving) -> None:
    assert tiny_server.launch.metrics_url
    with urllib.request.urlopen(tiny_server.launch.metrics_url) as reply:
        text = reply.read().decode()
    assert 'nv_inference_request_success{model="tiny"' in text


def test_the_stub_has_numpy_1_and_our_onnxruntime_whatever_leaks_in(tmp_path: Path) -> None:
    found = ensure_triton(lambda _: None)
    (tmp_path / "numpy.py").write_text("__version__ = '2'")
    leaks = {"PYTHONPATH": str(tmp_path), "VIRTUAL_ENV": str(tmp_path)}
    done = subprocess.run(
        [
            "python3",
            "-c",
            "import numpy, onnxruntime as o; print(numpy.__version__, o.__version__)",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, **leaks, **found.environment},
        check=True,
    )
    numpy_version, onnxruntime_version = done.stdout.split()
    assert numpy_version.startswith("1.")
    assert onnxruntime_version == installed_onnxruntime()[1]


def test_a_second_call_fetches_nothing() -> None:
    ensure_triton(lambda _: None)
    lines: list[str] = []
    ensure_triton(lines.append)
    assert lines == []


def test_another_version_of_our_backend_does_not_replace_this_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours = ensure_triton(lambda _: None).backends / "onnxruntime" / "model.py"
    before = ours.read_bytes()
    (tmp_path / "other.py").write_text("raise NotImplementedError")
    monkeypatch.setattr(wheel, "_BACKEND_MODEL", tmp_path / "other.py")
    other = ensure_triton(lambda _: None).backends
    try:
        assert (other / "onnxruntime" / "model.py").read_text() == "raise NotImplementedError"
        assert (other / "python" / "triton_python_backend_stub").is_file()
        assert ours.read_bytes() == before
    finally:
        shutil.rmtree(other)


def test_one_bad_request_in_a_batch_spoils_no_other(tmp_path: Path) -> None:
    """Rows that are joined into one run, of which one makes the run fail."""
    with serving(write_picky(tmp_path / "repository"), tmp_path) as server:

        def ask(index: int) -> float | str:
            try:
                data = np.array([[index]], np.int64)
                return float(server.ask("index", data, "INT64", "value")[0, 0])
            except InferenceServerException as error:
                return str(error)

        with ThreadPoolExecutor(4) as pool:
            good = list(pool.map(ask, [0, 1, 2, 4]))
            mixed = list(pool.map(ask, [0, 99, 2, 4]))
        assert good == [3.0, 1.0, 4.0, 9.0]
        assert [mixed[0], mixed[2], mixed[3]] == [3.0, 4.0, 9.0]
        assert "99" in str(mixed[1])
        assert server.executions("picky") < 8


def test_texts_are_joined_and_one_that_is_not_utf_8_spoils_no_other(tmp_path: Path) -> None:
    model = write_model(
        tmp_path / "repository",
        "text",
        [helper.make_node("Identity", ["x"], ["y"])],
        [Port("x", "BYTES", (1,))],
        [Port("y", "BYTES", (1,))],
        max_batch_size=8,
    )
    with (model.folder / "config.pbtxt").open("a") as config:
        config.write(WAITING)
    with serving(model, tmp_path) as server:

        def ask(text: bytes) -> bytes | str:
            try:
                return bytes(server.ask("x", np.array([[text]], np.object_), "BYTES", "y")[0, 0])
            except InferenceServerException as error:
                return str(error.status())

        texts = ["Grüße".encode(), b"", b"plain"]
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(ask, [*texts, b"\xff"])) == [*texts, "400"]
        assert server.executions("text") < 4


def test_bf16_beside_bytes_is_refused_with_the_reason(tmp_path: Path) -> None:
    model = write_model(
        tmp_path / "repository",
        "both",
        [helper.make_node("Identity", [f"x{n}"], [f"y{n}"]) for n in (1, 2)],
        [Port("x1", "BF16", (4,)), Port("x2", "BYTES", (1,))],
        [Port("y1", "BF16", (4,)), Port("y2", "BYTES", (1,))],
    )
    with pytest.raises(ServerError, match="BF16 beside BYTES"), serving(model, tmp_path):
        pass


def write_picky(root: Path) -> Model:
    """Looks a number up in a table; an index outside it is an error of that request alone."""
    graph = helper.make_graph(
        [helper.make_node("Gather", ["table", "index"], ["value"], axis=0)],
        "picky",
        [helper.make_tensor_value_info("index", TensorProto.INT64, ["batch", 1])],
        [helper.make_tensor_value_info("value", TensorProto.FLOAT, ["batch", 1])],
        [numpy_helper.from_array(TABLE, "table")],
    )
    (root / "picky" / "1").mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, root / "picky" / "1" / "model.onnx")
    (root / "picky" / "config.pbtxt").write_text(PICKY_CONFIG + WAITING)
    return Model(root, "picky")
