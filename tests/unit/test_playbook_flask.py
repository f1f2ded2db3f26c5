"""The Flask application answers as the FastAPI baseline does."""

from __future__ import annotations

import numpy as np
import pytest
from flask.testing import FlaskClient

from loadtest.payload import Payload
from loadtest.playbook.servers.flask_app import create_app
from serving.backends.fastapi.settings import Settings
from serving.models.repository import Model
from serving.protocol import HEADER_LENGTH, Array, Tensor, decode_response, encode_request
from serving.session import open_session
from tests.sample_models import write_tiny

ROW: Array = np.linspace(-1, 1, 64, dtype=np.float32)[None]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny(tmp_path_factory.mktemp("flask"))


@pytest.fixture
def client(model: Model, monkeypatch: pytest.MonkeyPatch) -> FlaskClient:
    settings = Settings(
        repository=model.root,
        model=model.name,
        engine="onnxruntime",
        inference_threads=1,
        metrics_port=None,
        slo_ms=None,
    )
    for name, value in settings.to_environment().items():
        monkeypatch.setenv(name, value)
    return create_app().test_client()


@pytest.mark.parametrize("binary", [True, False])
def test_an_answer_is_the_sessions_own(client: FlaskClient, model: Model, *, binary: bool) -> None:
    body, length = encode_request([Tensor.of("x", ROW)], binary=binary)
    reply = client.post(
        "/v2/models/tiny/infer", data=body, headers=Payload(body, length, {}).headers
    )
    assert reply.status_code == 200
    told = reply.headers.get(HEADER_LENGTH)
    assert (told is not None) == binary
    answer = decode_response(reply.data, int(told) if told else None)
    right = open_session(model).run({"x": ROW})
    np.testing.assert_allclose(answer["y"].array, right["y"], rtol=1e-6)


def test_a_request_that_does_not_fit_is_the_clients_fault(client: FlaskClient) -> None:
    body, length = encode_request([Tensor.of("x", ROW[:, :3])])
    reply = client.post(
        "/v2/models/tiny/infer", data=body, headers=Payload(body, length, {}).headers
    )
    assert reply.status_code == 400
    assert "expected shape" in reply.text


def test_another_model_is_unknown(client: FlaskClient) -> None:
    assert client.get("/v2/models/tiny/ready").status_code == 200
    reply = client.get("/v2/models/other/ready")
    assert reply.status_code == 404
    assert "other" in reply.text
