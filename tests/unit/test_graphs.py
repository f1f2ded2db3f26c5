"""Graphs made fit to serve, and compared with their configuration."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from serving.errors import ModelError
from serving.models.inspection import differences, inspect
from serving.models.normalise import (
    drop_initializers_from_inputs,
    drop_unused_initializers,
    rename,
    set_axes,
)
from serving.models.repository import Model


def scaled() -> onnx.ModelProto:
    """Y = x * w with a fixed batch of 2; the weight is listed as an input, another is unused."""
    tensor = helper.make_tensor_value_info
    weight = numpy_helper.from_array(np.array([3.0], np.float32), "w")
    unused = numpy_helper.from_array(np.array([1.0], np.float32), "unused")
    graph = helper.make_graph(
        [helper.make_node("Mul", ["x", "w"], ["y"])],
        "scaled",
        [tensor("x", TensorProto.FLOAT, [2, 4]), tensor("w", TensorProto.FLOAT, [1])],
        [tensor("y", TensorProto.FLOAT, [2, 4])],
        [weight, unused],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_normalising_frees_the_batch_and_keeps_the_answer(tmp_path: Path) -> None:
    import onnxruntime

    model = scaled()
    assert drop_initializers_from_inputs(model) == 1
    assert drop_unused_initializers(model) == 1
    rename(model, {"x": "in", "y": "out", "w": "weight"})
    set_axes(model, {"in": ("batch", 4), "out": ("batch", 4)})
    onnx.checker.check_model(model)
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    report = inspect(path)
    assert [t.name for t in report.inputs] == ["in"]
    assert report.outputs[0].dims == ("batch", 4)
    assert report.why_not_batchable == ""
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (answer,) = session.run(None, {"in": np.ones((5, 4), np.float32)})
    np.testing.assert_array_equal(answer, np.full((5, 4), 3.0, np.float32))


def test_a_fixed_batch_is_told(tmp_path: Path) -> None:
    onnx.save(scaled(), tmp_path / "model.onnx")
    report = inspect(tmp_path / "model.onnx")
    assert report.why_not_batchable == "'x' starts with an axis of fixed length 2"
    assert (report.opset, report.ir_version) == (17, 8)


def test_graph_and_configuration_are_compared(tiny: Model) -> None:
    report, config = inspect(tiny.file), tiny.config
    assert differences(report, config) == []
    (wanted,) = config.inputs
    for changed, told in (
        (dataclasses.replace(wanted, name="z"), "inputs are z"),
        (dataclasses.replace(wanted, datatype="FP64"), "FP64 in the configuration"),
        (dataclasses.replace(wanted, dims=(65,)), "[-1, 65] in the configuration"),
        (dataclasses.replace(wanted, dims=(-1,)), "[-1, -1] in the configuration"),
        (dataclasses.replace(wanted, dims=(64, 1)), "[-1, 64, 1] in the configuration"),
    ):
        (found,) = differences(report, dataclasses.replace(config, inputs=(changed,)))
        assert told in found


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"not a model at all")
    with pytest.raises(ModelError, match="no ONNX model"):
        inspect(tmp_path / "model.onnx")


def test_a_datatype_that_cannot_travel(tmp_path: Path) -> None:
    model = scaled()
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.COMPLEX64
    onnx.save(model, tmp_path / "model.onnx")
    with pytest.raises(ModelError, match="'y' is of type COMPLEX64"):
        inspect(tmp_path / "model.onnx")


def test_weights_read_only_inside_a_branch_are_kept_and_renamed() -> None:
    tensor = helper.make_tensor_value_info
    branches = {
        name: helper.make_graph(
            [helper.make_node("Identity", ["w"], [f"{name}_y"])],
            name,
            [],
            [tensor(f"{name}_y", TensorProto.FLOAT, [1])],
        )
        for name in ("then_branch", "else_branch")
    }
    graph = helper.make_graph(
        [helper.make_node("If", ["flag"], ["y"], **branches)],
        "branched",
        [tensor("flag", TensorProto.BOOL, [])],
        [tensor("y", TensorProto.FLOAT, [1])],
        [numpy_helper.from_array(np.array([3.0], np.float32), "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=3)
    assert drop_unused_initializers(model) == 0
    rename(model, {"w": "weight"})
    drop_initializers_from_inputs(model)
    assert model.ir_version == 4
    onnx.checker.check_model(model, full_check=True)
