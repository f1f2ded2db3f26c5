"""Each backend once for the whole protocol suite, and each of NVIDIA's clients in front of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from serving.backends.registry import BACKENDS
from serving.deployment import fetch_needed
from serving.models.repository import Model
from tests.contract.clients import FLAVOURS, Client
from tests.contract.served import Served, serving
from tests.sample_models import PROTOCOL_MODELS

# Those of the registry that infersweep starts itself and that answer what the model does.
LABELS = [
    backend.name for backend in BACKENDS.values() if backend.answers and backend.name != "remote"
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Side by side, all tests of one backend run in one process: it is started once."""
    for item in items:
        if isinstance(item, pytest.Function) and hasattr(item, "callspec"):
            label = item.callspec.params.get("served")
            if label is not None:
                item.add_marker(pytest.mark.xdist_group(label))


@pytest.fixture(scope="package")
def protocol_models(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Model]:
    root = tmp_path_factory.mktemp("protocol_models")
    return {model.name: model for model in (write(root) for write in PROTOCOL_MODELS)}


@pytest.fixture(scope="package", params=LABELS)
def served(
    request: pytest.FixtureRequest,
    protocol_models: Mapping[str, Model],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Served]:
    label = request.param
    fetch_needed([label], print)
    with serving(label, protocol_models, tmp_path_factory.mktemp(label)) as found:
        yield found


@pytest.fixture(params=FLAVOURS)
def client(request: pytest.FixtureRequest, served: Served) -> Client:
    if request.param.startswith("grpc"):
        served.require("grpc")
    return Client(served, request.param)


@pytest.fixture
def http(served: Served) -> Client:
    return Client(served, "http")


@pytest.fixture
def grpc(served: Served) -> Client:
    served.require("grpc")
    return Client(served, "grpc")
