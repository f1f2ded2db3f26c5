"""``config.pbtxt`` as text: what is read, what is refused, what is written for a placement."""

from __future__ import annotations

from pathlib import Path

import pytest

from serving.errors import ModelError
from serving.models.config import load_config
from serving.models.repository import DEFAULT_ROOT, Model, find_model, list_models, place
from tests.sample_models import TINY_CONFIG


def load(tmp_path: Path, text: str, folder: str = "tiny") -> object:
    (tmp_path / folder).mkdir()
    path = tmp_path / folder / "config.pbtxt"
    path.write_text(text)
    return load_config(path)


def test_the_committed_configurations_state_threads_and_instances() -> None:
    models = list_models(DEFAULT_ROOT)
    assert {"image_classifier", "face_detector"} <= {model.name for model in models}
    for model in models:
        assert (model.config.instances, model.config.intra_op_threads) == (1, 1)
        assert model.config.accelerator == "cpu"


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ('name: "tiny"', 'name: "other"', "Triton wants both"),
        ("max_batch_size: 8", "max_batch_size: 0", "never batched"),
        ("max_queue_delay_microseconds: 0", "preferred_batch_size: [ 16 ]", "batches of 16 above"),
        ("TYPE_FP32", "TYPE_FP33", "line 4"),
        ("max_batch_size: 8", "max_batch_size: 8,,", "line 3"),
        ('value { string_value: "1" }', 'value { string_value: "0" }', "whole number"),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path: Path, old: str, new: str, told: str) -> None:
    assert old in TINY_CONFIG
    with pytest.raises(ModelError, match=told):
        load(tmp_path, TINY_CONFIG.replace(old, new)).threads  # type: ignore[attr-defined]  # noqa: B018


def test_a_placement_changes_instances_and_threads_only(tiny: Model, tmp_path: Path) -> None:
    placed = place(tiny, tmp_path, instances=3, intra_op_threads=2)
    assert (placed.config.instances, placed.config.intra_op_threads) == (3, 2)
    assert placed.config.threads == 6
    assert (placed.config.inputs, placed.config.outputs) == (
        tiny.config.inputs,
        tiny.config.outputs,
    )
    assert placed.sha256() == tiny.sha256()
    again = place(tiny, tmp_path, instances=1, intra_op_threads=1)
    assert again.config.threads == 1


def test_an_unknown_model_lists_the_known(tiny: Model) -> None:
    with pytest.raises(ModelError, match="Models found there: tiny"):
        find_model("tinny", tiny.root)


def test_a_model_that_is_not_built_says_how(tmp_path: Path) -> None:
    load(tmp_path, TINY_CONFIG)
    with pytest.raises(ModelError, match="models build tiny"):
        _ = Model(tmp_path, "tiny").version
