"""Inputs that are made up: in range, of the stated shape, the same ones every time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from serving.errors import ModelError
from serving.models.generated import ValueRange, parse_range, random_values
from serving.models.repository import Model
from serving.models.samples import samples_for
from serving.protocol import NUMPY_TYPES
from tests.sample_models import write_datatypes

SHAPES = {f"x_{kind.lower()}" for kind in NUMPY_TYPES} - {"x_fp16", "x_bf16"}


@pytest.fixture
def datatypes(tmp_path: Path) -> Model:
    """[-1, 2] of each datatype that JSON carries, without a batch axis."""
    return write_datatypes(tmp_path)


def stated(model: Model, **parameters: str) -> Model:
    """``model`` with a shape for every input, unless ``parameters`` say otherwise."""
    every = {f"sample_shape.{name}": "3,2" for name in sorted(SHAPES)} | parameters
    config = model.folder / "config.pbtxt"
    config.write_text(
        config.read_text()
        + "".join(
            f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'
            for key, value in every.items()
        )
    )
    return model


def test_they_keep_to_shapes_and_ranges(datatypes: Model) -> None:
    more = {"sample_range.x_int32": "-2..2", "sample_range.x_fp64": "0.25..0.5"}
    model = stated(datatypes, **more)
    samples = samples_for(model)
    assert len(samples) == 8
    for sample in samples:
        assert {array.shape for array in sample.inputs.values()} == {(3, 2)}
    joined = {name: np.stack([s.inputs[name] for s in samples]) for name in SHAPES}
    assert (joined["x_int32"].min(), joined["x_int32"].max()) == (-2, 2)
    assert 0.25 <= joined["x_fp64"].min() < joined["x_fp64"].max() <= 0.5
    assert set(joined["x_int64"].ravel()) == set(joined["x_uint8"].ravel()) == {0, 1}
    again = samples_for(Model(model.root, model.name))
    for one, other in zip(samples, again, strict=True):
        for name, array in one.inputs.items():
            np.testing.assert_array_equal(array, other.inputs[name])


def test_a_length_that_nobody_states_is_asked_for(datatypes: Model) -> None:
    with pytest.raises(ModelError, match=r"x_bool.*no fixed length.*sample_shape\.x_bool"):
        samples_for(datatypes)


@pytest.mark.parametrize(
    ("parameter", "value", "told"),
    [
        ("sample_shape.z", "1,2", "names no input. Inputs: x_bool"),
        ("sample_shape.x_fp32", "3", r"numbers above 0 that fit dims \[-1, 2\]"),
        ("sample_shape.x_fp32", "3,4", r"fit dims \[-1, 2\]"),
        ("sample_shape.x_fp32", "0,2", r"fit dims \[-1, 2\]"),
        ("sample_shape.x_fp32", "3x2", r"fit dims \[-1, 2\]"),
        ("sample_range.x_fp32", "9..0", "a range such as 0..99"),
        ("sample_range.x_fp32", "many", "a range such as 0..99"),
        ("sample_range.x_uint8", "-1..3", "whole numbers that UINT8 can hold"),
        ("sample_range.x_int32", "0..0.5", "whole numbers that INT32 can hold"),
        ("sample_range.x_bytes", "0..1", "no range for an input of BYTES"),
    ],
)
def test_parameters_that_cannot_be_are_told(
    datatypes: Model, parameter: str, value: str, told: str
) -> None:
    with pytest.raises(ModelError, match=told):
        _ = stated(datatypes, **{parameter: value}).config


@pytest.mark.parametrize("text", ["0..99", "-1.5..2.25", "1e-05..3", "0..1234567", "7..7"])
def test_a_range_is_written_as_it_is_read(text: str) -> None:
    assert str(parse_range(text)) == text


def test_both_ends_of_the_widest_integers_are_met() -> None:
    rng = np.random.default_rng(1)
    values = random_values("UINT8", (5000,), rng, ValueRange(0, 255))
    assert (values.min(), values.max(), values.dtype) == (0, 255, np.uint8)
