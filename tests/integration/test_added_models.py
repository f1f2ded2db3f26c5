"""Every odd model that can be served is served right: by each backend, on the same files."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import uvicorn

from serving.backends.fastapi.app import create_app
from serving.backends.fastapi.settings import Settings
from serving.deployment import fetch_needed
from serving.importing import add
from serving.models.repository import Model
from serving.parity import check_parity, reference_for
from serving.process import free_port
from tests.contract.served import FIRST_MODEL, serving
from tests.odd_accepted import REPEATABLE
from tests.sample_models import write_tiny


@pytest.fixture(scope="module")
def added(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Model]:
    """All of them, and the model that a server starts with."""
    root = tmp_path_factory.mktemp("added")
    models = {FIRST_MODEL: write_tiny(root)}
    for case in REPEATABLE:
        models[case.name] = add(case.request(tmp_path_factory.mktemp(case.name)), root).model
    return models


@pytest.mark.parametrize("label", ["onnxruntime", "triton"])
def test_one_server_answers_for_all_as_the_reference(
    added: Mapping[str, Model], label: str, tmp_path: Path
) -> None:
    fetch_needed([label], print)
    wrong = {}
    with serving(label, added, tmp_path) as served:
        for name, model in added.items():
            result = check_parity(served.server_of(name).url, model, reference_for(model))
            if not result.passed:
                wrong[name] = result.detail
    assert not wrong


def test_fastapi_answers_for_each_as_the_reference(
    added: Mapping[str, Model], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this process: a gunicorn for every model would show nothing more and take minutes."""
    wrong = {}
    for name, model in added.items():
        settings = Settings(
            repository=model.root, model=name, engine="onnxruntime", inference_threads=1
        )
        with monkeypatch.context() as environment:
            for key, value in settings.to_environment().items():
                environment.setenv(key, value)
            with application() as url:
                result = check_parity(url, model, reference_for(model))
        if not result.passed:
            wrong[name] = result.detail
    assert not wrong


@contextmanager
def application() -> Iterator[str]:
    """The baseline's application on an address of its own."""
    port = free_port("127.0.0.1")
    server = uvicorn.Server(uvicorn.Config(create_app, factory=True, port=port, log_level="error"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.should_exit = True
        thread.join()
