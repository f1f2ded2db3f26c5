"""What a server says of itself and its models, and how models come and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import numpy as np
import pytest

from serving.models.config import load_message
from serving.models.repository import Model
from serving.process import wait_until
from tests.contract.clients import Client
from tests.contract.differences import Outcome
from tests.contract.served import FIRST_MODEL, Served, serving

X = np.array([[1, -2, 3, -4]], np.float32)
EXTENSIONS = ("model_repository", "statistics", "system_shared_memory")


@pytest.fixture(scope="module")
def spare(
    served: Served, protocol_models: Mapping[str, Model], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """A second server, for what may leave one not ready."""
    served.require("model_repository")
    with serving(served.label, protocol_models, tmp_path_factory.mktemp("spare")) as spare:
        yield spare


@pytest.fixture
def repository(client: Client) -> Iterator[Client]:
    """The client, where models can come and go; model ``fixed`` is loaded, before and after."""
    client.served.require("model_repository")
    client.served.server_of("fixed")
    yield client
    client.call("load_model", "fixed")


def test_live_and_ready(client: Client) -> None:
    assert client.call("is_server_live") is True
    assert client.call("is_server_ready") is True


def test_a_server_names_itself_and_what_it_can_do(client: Client) -> None:
    found = client.server_metadata()
    assert found.name
    assert found.version
    offered = {name for name in EXTENSIONS if client.served.has(name)}
    assert {"binary_tensor_data", "model_configuration", *offered} <= set(found.extensions)


@pytest.mark.parametrize("version", ["", "1"])
def test_model_metadata(client: Client, version: str) -> None:
    found = client.model_metadata("gain", version)
    assert (found.name, list(found.versions)) == ("gain", ["1"])
    assert found.platform
    described = {tensor.name: (tensor.datatype, list(tensor.shape)) for tensor in found.inputs}
    assert described == {"x": ("FP32", [-1, 4]), "gain": ("FP32", [1])}
    batched = client.model_metadata("arithmetic", version)
    described = {tensor.name: (tensor.datatype, list(tensor.shape)) for tensor in batched.outputs}
    assert described == {"sum": ("INT32", [-1, 3]), "difference": ("INT32", [-1, 3])}


@pytest.mark.parametrize("version", ["", "1"])
@pytest.mark.parametrize("model", ["tiny", "datatypes"])
def test_model_config_is_that_of_the_file(client: Client, model: str, version: str) -> None:
    found = client.model_config(model, version)
    folder = client.served.folder / "repository" / model
    written = load_message(folder / "config.pbtxt")
    assert (found.name, found.max_batch_size) == (model, written.max_batch_size)
    assert list(found.input) == list(written.input)
    assert list(found.output) == list(written.output)
    assert dict(found.parameters) == dict(written.parameters)
    assert [(group.kind, group.count) for group in found.instance_group] == [
        (group.kind, group.count) for group in written.instance_group
    ]
    assert found.HasField("dynamic_batching") == written.HasField("dynamic_batching")


@pytest.mark.parametrize(("model", "version"), [("nobody", ""), ("tiny", "2")])
def test_an_unknown_model_or_version(client: Client, model: str, version: str) -> None:
    assert client.call("is_model_ready", FIRST_MODEL, "1") is True
    assert client.call("is_model_ready", model, version) is False
    asked: tuple[Callable[[], object], ...] = (
        lambda: client.model_metadata(model, version),
        lambda: client.model_config(model, version),
    )
    for ask in asked:
        assert client.outcome(ask) is Outcome.CLIENT_FAULT


def test_the_index_lists_the_repository_with_its_states(repository: Client) -> None:
    index = repository.index()
    assert set(index) == set(repository.served.models)
    assert (index["fixed"].state, index["fixed"].version) == ("READY", "1")


def test_unloaded_is_gone_and_loaded_is_back(repository: Client) -> None:
    repository.call("unload_model", "fixed")
    wait_until(
        lambda: repository.index()["fixed"].state == "UNAVAILABLE",
        deadline_s=10,
        process=None,
        what="fixed is not unloaded",
    )
    assert repository.call("is_model_ready", "fixed") is False
    assert repository.outcome(lambda: repository.infer("fixed", {"x": X})) is Outcome.CLIENT_FAULT
    metadata = repository.outcome(lambda: repository.model_metadata("fixed"))
    assert metadata is Outcome.CLIENT_FAULT
    repository.call("load_model", "fixed")
    assert repository.index()["fixed"].state == "READY"
    assert repository.call("is_model_ready", "fixed") is True
    np.testing.assert_array_equal(
        repository.infer("fixed", {"x": X}).outputs["y"], np.maximum(X, 0)
    )


def test_loading_what_is_loaded_changes_nothing(repository: Client) -> None:
    repository.call("load_model", "fixed")
    np.testing.assert_array_equal(
        repository.infer("fixed", {"x": X}).outputs["y"], np.maximum(X, 0)
    )


def test_an_unknown_model_cannot_be_loaded_or_unloaded(repository: Client) -> None:
    served = repository.served
    # Over HTTP the name is a part of the path, which clients shorten before they send it.
    for name in ("nobody", "../repository/tiny") if repository.is_grpc else ("nobody",):
        load = repository.outcome(lambda model=name: repository.call("load_model", model))
        assert load is served.expected("load of an unknown model")
        unload = repository.outcome(lambda model=name: repository.call("unload_model", model))
        assert unload is served.expected("unload of an unknown model")


def test_a_model_that_cannot_run_here_is_refused_with_the_reason(
    client: Client, spare: Served
) -> None:
    """ONNX Runtime has no BF16 sum on the CPU."""
    asking = Client(spare, client.flavour)
    load = asking.outcome(lambda: asking.call("load_model", "bfloat16_sum"))
    assert load is Outcome.CLIENT_FAULT
    failed = asking.index()["bfloat16_sum"]
    assert failed.state == "UNAVAILABLE"
    assert "Add" in failed.reason
    assert asking.call("is_server_live") is True
    assert asking.call("is_server_ready") is spare.has("ready after a failed load")
    np.testing.assert_array_equal(asking.infer("fixed", {"x": X}).outputs["y"], np.maximum(X, 0))
    asking.call("unload_model", "bfloat16_sum")
    assert asking.call("is_server_ready") is spare.has("ready after a failed load")
