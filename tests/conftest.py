"""Fixtures shared by all tests."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from loadtest.targets import FOLDER_VARIABLE
from serving.models.repository import Model
from tests.sample_models import write_tiny

ALONE = frozenset(
    {
        "integration/test_bare_loop",
        "integration/test_fastapi_metrics",
        "integration/test_generator",
        "integration/test_mlperf",
        "integration/test_mlperf_driver",
        "integration/test_null_server",
        "integration/test_publishing",
        "integration/test_resources",
        "integration/test_server_life",
        "integration/test_server_safety",
        "integration/test_slo",
        "integration/test_streams",
        "integration/test_sweep",
        "integration/test_two_hosts",
        "integration/test_wires",
        "contract/test_engines",
        "e2e/test_compare",
        "e2e/test_observing",
    }
)
"""Modules in which time matters: they have the machine for themselves, others share it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        name = item.path.relative_to(Path(__file__).parent).with_suffix("").as_posix()
        if name in ALONE:
            item.add_marker("alone")


@pytest.fixture(scope="session", autouse=True)
def _own_targets(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A Prometheus that somebody runs on this machine is not told of tests."""
    os.environ[FOLDER_VARIABLE] = str(tmp_path_factory.mktemp("targets"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model of 64 floats in and 10 out, batched up to 8."""
    return write_tiny(tmp_path_factory.mktemp("repository"))
