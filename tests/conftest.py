"""Fixtures shared by all tests."""

from __future__ import annotations

import pytest

from serving.models.repository import Model
from tests.sample_models import write_tiny


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """A model of 64 floats in and 10 out, batched up to 8."""
    return write_tiny(tmp_path_factory.mktemp("repository"))
