"""Models that are slow, heavy, or whose rows depend on each other: what a server must survive."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, TensorProto, helper, numpy_helper

from serving.models.repository import Model

_SIDE = 256


def write_slow(root: Path, *, more: str = "") -> Model:
    """``y = x``, after as many products of matrices as ``x`` says: some 0.5 ms each."""
    weights = np.random.default_rng(1).standard_normal((_SIDE, _SIDE)).astype(np.float32) / _SIDE
    body = helper.make_graph(
        [
            helper.make_node("Identity", ["go_on"], ["go_on_out"]),
            helper.make_node("MatMul", ["m", "w"], ["product"]),
            helper.make_node("Tanh", ["product"], ["m_out"]),
        ],
        "body",
        [
            helper.make_tensor_value_info("step", TensorProto.INT64, []),
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info("m", TensorProto.FLOAT, [_SIDE, _SIDE]),
        ],
        [
            helper.make_tensor_value_info("go_on_out", TensorProto.BOOL, []),
            helper.make_tensor_value_info("m_out", TensorProto.FLOAT, [_SIDE, _SIDE]),
        ],
    )
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["steps"], to=TensorProto.INT64),
        helper.make_node("Loop", ["steps", "", "w"], ["last"], body=body),
        helper.make_node("ReduceMean", ["last"], ["mean"], keepdims=0),
        helper.make_node("Mul", ["mean", "zero"], ["nothing"]),
        helper.make_node("Add", ["x", "nothing"], ["y"]),
    ]
    zero = numpy_helper.from_array(np.zeros((), np.float32), "zero")
    weights_tensor = numpy_helper.from_array(weights, "w")
    return _write(root, "slow", nodes, ["batch", 1], ["batch", 1], [weights_tensor, zero], more)


def write_heavy(root: Path, megabytes: int) -> Model:
    """``y = x`` plus that row of a table of ``megabytes`` which ``x`` says; all its rows are 1."""
    table = np.ones((megabytes * 250, 1000), np.float32)
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["row"], to=TensorProto.INT64),
        helper.make_node("Gather", ["table", "row"], ["picked"]),
        helper.make_node("Add", ["x", "picked"], ["y"]),
    ]
    constants = [numpy_helper.from_array(table, "table")]
    return _write(root, "heavy", nodes, ["batch", 1000], ["batch", 1000], constants)


def write_dependent(root: Path) -> Model:
    """``y = x`` less the mean over all rows of the batch."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "mean"], ["y"]),
    ]
    more = "dynamic_batching { max_queue_delay_microseconds: 2000 }"
    return _write(root, "dependent", nodes, ["batch", 3], ["batch", 3], [], more)


def _write(
    root: Path,
    name: str,
    nodes: Sequence[NodeProto],
    given: Sequence[str | int],
    found: Sequence[str | int],
    constants: Sequence[TensorProto],
    more: str = "",
) -> Model:
    graph = helper.make_graph(
        nodes,
        name,
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, given)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, found)],
        list(constants),
    )
    folder = root / name / "1"
    folder.mkdir(parents=True)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.save(model, folder / "model.onnx")
    (root / name / "config.pbtxt").write_text(
        f'name: "{name}" backend: "onnxruntime" max_batch_size: 4\n'
        f'input [ {{ name: "x" data_type: TYPE_FP32 dims: [ {given[1]} ] }} ]\n'
        f'output [ {{ name: "y" data_type: TYPE_FP32 dims: [ {found[1]} ] }} ]\n'
        "instance_group [ { count: 1 kind: KIND_CPU } ]\n" + more
    )
    return Model(root, name)
