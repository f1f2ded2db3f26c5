"""What a model is told to refuse."""

from __future__ import annotations

import numpy as np
import pytest

from serving.models.config import ModelConfig, TensorSpec
from serving.protocol import ProtocolError, Tensor
from serving.validation import validate_inputs

CONFIG = ModelConfig(
    "m",
    "onnxruntime",
    4,
    (TensorSpec("a", "FP32", (3,)), TensorSpec("b", "INT64", (-1,))),
    (TensorSpec("y", "FP32", (1,)),),
)


def tensors(rows_a: int = 2, rows_b: int = 2, width: int = 3) -> list[Tensor]:
    return [
        Tensor.of("a", np.zeros((rows_a, width), np.float32)),
        Tensor.of("b", np.zeros((rows_b, 5), np.int64)),
    ]


def test_fitting_inputs_pass() -> None:
    assert set(validate_inputs(CONFIG, tensors())) == {"a", "b"}


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (tensors(width=4), r"expected shape \[-1, 3\], got \[2, 4\]"),
        (tensors(rows_b=1), "different batch sizes"),
        (tensors(5, 5), "outside 1..4"),
        (tensors(0, 0), "outside 1..4"),
        (tensors()[:1], "missing inputs of model 'm': b"),
        ([*tensors(), tensors()[0]], "came twice"),
        ([*tensors(), Tensor.of("c", np.zeros(1))], "unexpected input 'c'"),
        ([Tensor.of("a", np.zeros((2, 3))), tensors()[1]], "expected datatype FP32, got FP64"),
        ([Tensor.of("a", np.zeros(3, np.float32)), tensors()[1]], "expected shape"),
    ],
)
def test_what_does_not_fit_is_told(given: list[Tensor], told: str) -> None:
    with pytest.raises(ProtocolError, match=told):
        validate_inputs(CONFIG, given)
