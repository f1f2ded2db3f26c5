"""What every backend must do, asked through tritonclient; runs over the whole registry."""

from __future__ import annotations

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pytest
import tritonclient.http as client
from tritonclient.utils import InferenceServerException

from serving.backends.registry import BACKENDS, resolve
from serving.deployment import Placement, Server, fetch_needed, running
from serving.errors import UsageError
from serving.models.repository import Model
from serving.parity import check_parity, reference_for
from serving.process import family
from serving.protocol import Tensor, encode_request
from serving.readiness import reach_every_worker
from serving.session import Session, open_session

STARTED = [name for name in BACKENDS if name != "remote"]
PLACEMENT = Placement(cpus=(0,), usable_cpus=2)


@dataclass(frozen=True)
class Subject:
    """A running backend beside the session that knows the right answers."""

    label: str
    server: Server
    reference: Session

    @property
    def answers(self) -> bool:
        return resolve(self.label)[0].answers

    def connect(self) -> client.InferenceServerClient:
        return client.InferenceServerClient(urlsplit(self.server.url).netloc, concurrency=1)

    def post(self, body: bytes, headers: dict[str, str], model: str = "tiny") -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(urlsplit(self.server.url).netloc, timeout=20)
        connection.request("POST", f"/v2/models/{model}/infer", body, headers)
        reply = connection.getresponse()
        content = reply.read()
        connection.close()
        return reply.status, content


@pytest.fixture(scope="module", params=[*STARTED, "remote"])
def subject(
    request: pytest.FixtureRequest, tiny: Model, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Subject]:
    label = request.param
    folder = tmp_path_factory.mktemp(label)
    fetch_needed([label], print)
    reference = open_session(tiny)
    if label != "remote":
        with running(label, tiny, PLACEMENT, repository=folder / "r", logs=folder) as server:
            yield Subject(label, server, reference)
        return
    with running("onnxruntime", tiny, PLACEMENT, repository=folder / "r", logs=folder) as behind:
        label = f"remote:{behind.url}"
        with running(label, tiny, PLACEMENT, repository=folder / "q", logs=folder) as server:
            yield Subject(label, server, reference)


def rows(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 64)).astype(np.float32)


def ask(subject: Subject, array: np.ndarray, *, binary: bool = True) -> np.ndarray:
    tensor = client.InferInput("x", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array, binary_data=binary)
    wanted = [client.InferRequestedOutput("y", binary_data=binary)]
    connection = subject.connect()
    try:
        return connection.infer("tiny", [tensor], outputs=wanted).as_numpy("y")
    finally:
        connection.close()


def expect(subject: Subject, array: np.ndarray) -> np.ndarray:
    right = subject.reference.run({"x": array})["y"]
    return right if subject.answers else np.zeros_like(right)


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
@pytest.mark.parametrize("count", [1, 3, 8])
def test_answers_are_right(subject: Subject, count: int, binary: bool) -> None:
    array = rows(count, seed=count)
    answer = ask(subject, array, binary=binary)
    assert answer.dtype == np.float32
    np.testing.assert_allclose(answer, expect(subject, array), atol=1e-6)


def test_concurrent_clients_get_their_own_answers(subject: Subject) -> None:
    arrays = [rows(1 + n % 3, seed=n) for n in range(40)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda array: ask(subject, array), arrays))
    for array, answer in zip(arrays, answers, strict=True):
        np.testing.assert_allclose(answer, expect(subject, array), atol=1e-6)


def test_parity_tells_backends_that_answer_from_those_that_do_not(subject: Subject) -> None:
    model = subject.server.model
    assert check_parity(subject.server.url, model, reference_for(model)).passed == subject.answers


def test_health_and_metadata(subject: Subject) -> None:
    connection = subject.connect()
    assert connection.is_server_live()
    assert connection.is_server_ready()
    assert connection.is_model_ready("tiny")
    assert not connection.is_model_ready("other")
    described = connection.get_model_metadata("tiny")
    assert (described["name"], described["versions"]) == ("tiny", ["1"])
    assert described["inputs"] == [{"name": "x", "datatype": "FP32", "shape": [-1, 64]}]
    assert described["outputs"] == [{"name": "y", "datatype": "FP32", "shape": [-1, 10]}]
    connection.close()


@pytest.mark.parametrize(
    ("shape", "datatype", "name"),
    [
        ([1, 63], "FP32", "x"),
        ([64], "FP32", "x"),
        ([9, 64], "FP32", "x"),
        ([1, 64], "FP64", "x"),
        ([1, 64], "FP32", "z"),
    ],
)
def test_a_tensor_that_does_not_fit_is_the_clients_fault(
    subject: Subject, shape: list[int], datatype: str, name: str
) -> None:
    dtype = np.float32 if datatype == "FP32" else np.float64
    body, length = encode_request([Tensor.of(name, np.zeros(shape, dtype))])
    status, content = subject.post(body, {"Inference-Header-Content-Length": str(length)})
    assert 400 <= status < 500
    assert json.loads(content)["error"]
    np.testing.assert_allclose(ask(subject, rows(1)), expect(subject, rows(1)), atol=1e-6)


def test_an_unknown_model_is_a_client_fault(subject: Subject) -> None:
    body, length = encode_request([Tensor.of("x", rows(1))])
    status, _ = subject.post(body, {"Inference-Header-Content-Length": str(length)}, model="other")
    assert status in (400, 404)


def test_tritonclient_reports_the_fault(subject: Subject) -> None:
    with pytest.raises(InferenceServerException):
        ask(subject, rows(9))


def test_every_worker_answers(subject: Subject) -> None:
    body, length = encode_request([Tensor.of("x", rows(1))])
    headers = {"Inference-Header-Content-Length": str(length)}
    sent = reach_every_worker(
        subject.server.url,
        "tiny",
        body,
        headers,
        count=subject.server.launch.worker_count,
        deadline_s=20,
    )
    assert sent >= subject.server.launch.worker_count


@pytest.mark.parametrize("label", STARTED)
def test_leaving_stops_the_server_and_all_its_children(
    label: str, tiny: Model, tmp_path: Path
) -> None:
    fetch_needed([label], print)
    with running(label, tiny, PLACEMENT, repository=tmp_path / "r", logs=tmp_path) as server:
        assert server.process is not None
        members = family(server.process.pid)
        assert members
        assert server.launch.facts
    assert not any(process.is_running() for process in members)


def test_unknown_names_and_options_are_refused() -> None:
    for label in ("tritn", "", "triton:fast"):
        with pytest.raises(UsageError):
            resolve(label)
