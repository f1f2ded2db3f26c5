"""Fixtures shared by all tests."""

from __future__ import annotations

import os

import pytest

from loadtest.targets import FOLDER_VARIABLE
from serving.models.repository import Model
from tests.sample_models import write_tiny


@pytest.fixture(scope="session", autouse=True)
def _own_targets(tmp_path_factory: pytest.TempPathFactory) -> None:
    """A Prometheus that somebody runs on this machine is not told of tests."""
    os.environ[FOLDER_VARIABLE] = str(tmp_path_factory.mktemp("targets"))


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model of 64 floats in and 10 out, batched up to 8."""
    return write_tiny(tmp_path_factory.mktemp("repository"))
