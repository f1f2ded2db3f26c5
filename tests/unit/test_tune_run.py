"""What is concluded from a results folder: made-up trials, no server."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.models.repository import Model
from tests.sample_models import write_tiny
from tests.sample_tuning import concluded


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny(tmp_path_factory.mktemp("repository"))


def test_the_gain_is_that_of_the_repeats_and_the_setting_is_ready_to_deploy(
    model: Model, tmp_path: Path
) -> None:
    record = concluded(model, tmp_path, (100.0, 100.0, 101.0, 99.0), (300.0, 120.0, 121.0, 119.0))
    (found,) = record.backends
    assert found.gain is not None
    assert found.gain.decision == "gain"
    assert found.gain.tuned_rps == (120.0, 121.0, 119.0)
    assert found.gain.default_rps == (100.0, 101.0, 99.0)
    assert (found.best, found.chosen, record.complete) == (1, 1, True)
    assert found.deploy is not None
    (file,) = found.deploy.files
    written = (tmp_path / found.deploy.folder / file).read_text()
    assert found.deploy.files[file] == written
    assert 'key: "enable_mem_arena"' in written
    assert [row.backend for row in record.ranking.rows] == ["onnxruntime #1", "onnxruntime"]


def test_a_setting_that_was_only_lucky_is_not_deployed(model: Model, tmp_path: Path) -> None:
    record = concluded(model, tmp_path, (100.0, 100.0, 101.0, 99.0), (300.0, 101.0, 98.0, 100.5))
    (found,) = record.backends
    assert found.gain is not None
    assert found.gain.decision == "no significant gain"
    assert (found.best, found.chosen) == (1, 0)
    assert found.deploy is not None
    (text,) = found.deploy.files.values()
    assert "enable_mem_arena" not in text


def test_nothing_is_deployed_while_repeats_are_missing(model: Model, tmp_path: Path) -> None:
    record = concluded(model, tmp_path, (100.0, 100.0, 101.0, 99.0), (300.0, 120.0, 121.0))
    (found,) = record.backends
    assert (found.gain, found.chosen, found.deploy, record.complete) == (None, None, None, False)
    assert not (tmp_path / "deploy").exists()
