"""The translation to JAX answers what ONNX Runtime does."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from loadtest.playbook.jaxed import function_of, graph_of
from serving.errors import ModelError
from serving.models.repository import Model, find_model

os.environ.setdefault("JAX_PLATFORMS", "cpu")
RNG = np.random.default_rng(1)


def floats(*shape: int) -> Any:
    return RNG.normal(size=shape).astype(np.float32)


def agree(node: onnx.NodeProto, data: Any, weights: dict[str, Any]) -> None:
    """One operator on the same input, both ways."""
    import jax

    outputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in node.output
    ]
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, data.shape)],
        outputs,
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    wanted = session.run(None, {"x": data})
    for got, right in zip(function_of(model, jax)(data), wanted, strict=True):
        np.testing.assert_allclose(np.asarray(got).reshape(right.shape), right, atol=1e-5)


def test_a_convolution_with_groups_strides_and_pads_of_unequal_length() -> None:
    node = helper.make_node(
        *("Conv", ["x", "w", "b"], ["y"]), group=2, strides=[2, 2], pads=[0, 1, 1, 2]
    )
    agree(node, floats(1, 4, 7, 8), {"w": floats(6, 2, 3, 3), "b": floats(6)})


@pytest.mark.parametrize("linear", [0, 1])
def test_a_recurrent_cell(linear: int) -> None:
    node = helper.make_node(
        *("GRU", ["x", "w", "r", "b", "", "s"], ["y", "last"]),
        hidden_size=5,
        linear_before_reset=linear,
    )
    weights = {"w": floats(1, 15, 3), "r": floats(1, 15, 5), "b": floats(1, 30)}
    # ONNX keeps a direction axis in front of the rows of every state.
    agree(node, floats(2, 4, 3), weights | {"s": floats(1, 4, 5)})


@pytest.mark.parametrize("transposed", [0, 1])
def test_a_product_with_factors(transposed: int) -> None:
    node = helper.make_node(
        *("Gemm", ["x", "w", "b"], ["y"]), alpha=0.5, beta=2.0, transB=transposed
    )
    weights = {"w": floats(5, 3) if transposed else floats(3, 5), "b": floats(5)}
    agree(node, floats(2, 3), weights)


def test_what_has_no_translation_is_named() -> None:
    with pytest.raises(ModelError, match="no fixed length"):
        graph_of(find_model("face_detector"))


def test_a_model_of_the_sort_that_people_add_is_translated(tiny: Model) -> None:
    assert graph_of(tiny).graph.node
