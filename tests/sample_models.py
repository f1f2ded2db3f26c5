"""Small models made on the spot, for tests that need a real graph but not a real network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from serving.models.repository import Model

TINY_CONFIG = """\
name: "tiny"
backend: "onnxruntime"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ 64 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 10 ] } ]
instance_group [ { count: 1 kind: KIND_CPU } ]
dynamic_batching { max_queue_delay_microseconds: 0 }
parameters { key: "intra_op_thread_count" value { string_value: "1" } }
parameters { key: "inter_op_thread_count" value { string_value: "1" } }
"""

ELEMENT_TYPES = {
    "BOOL": TensorProto.BOOL,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "FP16": TensorProto.FLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BF16": TensorProto.BFLOAT16,
    "BYTES": TensorProto.STRING,
}
HALVES = ("FP16", "BF16")
"""The datatypes that JSON does not carry."""


@dataclass(frozen=True)
class Port:
    """An input or output.

    Attributes:
        dims: as ``config.pbtxt`` states them, without the batch axis; -1 where free.
        rank_0: the graph's own tensor has no axis, which ``config.pbtxt`` writes as one of 1.
    """

    name: str
    datatype: str
    dims: tuple[int, ...]
    rank_0: bool = False

    def in_graph(self, batched: bool) -> onnx.ValueInfoProto:
        free = [f"{self.name}_{axis}" if n < 0 else n for axis, n in enumerate(self.dims)]
        shape = [] if self.rank_0 else ["batch", *free] if batched else free
        return helper.make_tensor_value_info(self.name, ELEMENT_TYPES[self.datatype], shape)

    def in_config(self) -> str:
        name = "STRING" if self.datatype == "BYTES" else self.datatype
        return f'{{ name: "{self.name}" data_type: TYPE_{name} dims: {list(self.dims)} }}'


def write_model(
    root: Path,
    name: str,
    nodes: Sequence[onnx.NodeProto],
    inputs: Sequence[Port],
    outputs: Sequence[Port],
    *,
    max_batch_size: int = 0,
) -> Model:
    """Version 1 of a model without weights; no batch axis unless ``max_batch_size`` says so."""
    batched = max_batch_size > 0
    graph = helper.make_graph(
        list(nodes),
        name,
        [port.in_graph(batched) for port in inputs],
        [port.in_graph(batched) for port in outputs],
    )
    config = [
        f'name: "{name}"',
        'backend: "onnxruntime"',
        f"max_batch_size: {max_batch_size}",
        *(f"input {port.in_config()}" for port in inputs),
        *(f"output {port.in_config()}" for port in outputs),
        "instance_group [ { count: 1 kind: KIND_CPU } ]",
    ]
    folder = root / name / "1"
    folder.mkdir(parents=True)
    onnx.save(_finished(graph), folder / "model.onnx")
    (root / name / "config.pbtxt").write_text("\n".join(config) + "\n")
    return Model(root, name)


def write_tiny(root: Path, *, version: int = 1, seed: int = 7) -> Model:
    """``y = tanh(x @ w + b)`` with random weights; other seeds answer differently."""
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((64, 10)).astype(np.float32)
    bias = rng.standard_normal(10).astype(np.float32)
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["xw"]),
            helper.make_node("Add", ["xw", "b"], ["z"]),
            helper.make_node("Tanh", ["z"], ["y"]),
        ],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 64])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 10])],
        [numpy_helper.from_array(weights, "w"), numpy_helper.from_array(bias, "b")],
    )
    folder = root / "tiny" / str(version)
    folder.mkdir(parents=True)
    onnx.save(_finished(graph), folder / "model.onnx")
    (root / "tiny" / "config.pbtxt").write_text(TINY_CONFIG)
    return Model(root, "tiny")


def write_datatypes(root: Path) -> Model:
    """Each datatype that JSON carries, [-1, 2]: ``x_bool`` is given back as ``y_bool``."""
    kinds = [kind for kind in ELEMENT_TYPES if kind not in HALVES]
    return _identities(root, "datatypes", kinds, (-1, 2))


def write_halves(root: Path) -> Model:
    """FP16 and BF16, given back; batched up to 8."""
    return _identities(root, "halves", HALVES, (4,), max_batch_size=8)


def write_bfloat16_sum(root: Path) -> Model:
    """A sum, for which ONNX Runtime has no BF16 kernel on the CPU: it cannot be loaded."""
    x, y = Port("x", "BF16", (4,)), Port("y", "BF16", (4,))
    add = helper.make_node("Add", ["x", "x"], ["y"])
    return write_model(root, "bfloat16_sum", [add], [x], [y], max_batch_size=8)


def write_gain(root: Path) -> Model:
    """``y = x * gain`` with a gain of rank 0, which rules out a batch axis."""
    return write_model(
        root,
        "gain",
        [helper.make_node("Mul", ["x", "gain"], ["y"])],
        [Port("x", "FP32", (-1, 4)), Port("gain", "FP32", (1,), rank_0=True)],
        [Port("y", "FP32", (-1, 4))],
    )


def write_echo(root: Path) -> Model:
    """Any number of values, given back; one input and no batch axis."""
    return write_model(
        root,
        "echo",
        [helper.make_node("Identity", ["x"], ["y"])],
        [Port("x", "FP32", (-1,))],
        [Port("y", "FP32", (-1,))],
    )


def write_fixed(root: Path) -> Model:
    """A graph that was exported for one row only."""
    return write_model(
        root,
        "fixed",
        [helper.make_node("Relu", ["x"], ["y"])],
        [Port("x", "FP32", (1, 4))],
        [Port("y", "FP32", (1, 4))],
    )


def write_logarithm(root: Path) -> Model:
    """Gives NaN below zero and minus infinity at zero; batched up to 8."""
    return write_model(
        root,
        "logarithm",
        [helper.make_node("Log", ["x"], ["y"])],
        [Port("x", "FP32", (3,))],
        [Port("y", "FP32", (3,))],
        max_batch_size=8,
    )


def write_arithmetic(root: Path) -> Model:
    """Sum and difference of two inputs, two outputs; batched up to 8."""
    return write_model(
        root,
        "arithmetic",
        [
            helper.make_node("Add", ["a", "b"], ["sum"]),
            helper.make_node("Sub", ["a", "b"], ["difference"]),
        ],
        [Port("a", "INT32", (3,)), Port("b", "INT32", (3,))],
        [Port("sum", "INT32", (3,)), Port("difference", "INT32", (3,))],
        max_batch_size=8,
    )


PROTOCOL_MODELS: tuple[Callable[[Path], Model], ...] = (
    write_tiny,
    write_datatypes,
    write_halves,
    write_bfloat16_sum,
    write_gain,
    write_echo,
    write_fixed,
    write_logarithm,
    write_arithmetic,
)


def _identities(
    root: Path, name: str, kinds: Sequence[str], dims: tuple[int, ...], *, max_batch_size: int = 0
) -> Model:
    names = [kind.lower() for kind in kinds]
    return write_model(
        root,
        name,
        [helper.make_node("Identity", [f"x_{one}"], [f"y_{one}"]) for one in names],
        [Port(f"x_{kind.lower()}", kind, dims) for kind in kinds],
        [Port(f"y_{kind.lower()}", kind, dims) for kind in kinds],
        max_batch_size=max_batch_size,
    )


def _finished(graph: onnx.GraphProto) -> onnx.ModelProto:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
