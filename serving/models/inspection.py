"""What a graph needs and gives, and whether that is what its ``config.pbtxt`` says."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx

from serving.errors import ModelError
from serving.models.config import ModelConfig, TensorSpec
from serving.protocol import DATATYPES


@dataclass(frozen=True)
class GraphTensor:
    """Attributes: ``dims`` are numbers where fixed and words where the length may vary."""

    name: str
    datatype: str
    dims: tuple[int | str, ...]


@dataclass(frozen=True)
class GraphReport:
    """Attributes: ``why_not_batchable`` is empty when every tensor starts with a free axis."""

    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    opset: int
    ir_version: int
    why_not_batchable: str


def inspect(path: Path) -> GraphReport:
    """Read a graph's inputs and outputs.

    Raises:
        ModelError: the file is no ONNX model, or an input or output is no tensor.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except Exception as error:
        # Protobuf raises different classes from release to release.
        raise ModelError(
            f"{path} is no ONNX model: {str(error).splitlines()[0]}", hint="Is the file whole?"
        ) from None
    weights = {weight.name for weight in model.graph.initializer}
    inputs = tuple(_tensor(value) for value in model.graph.input if value.name not in weights)
    outputs = tuple(_tensor(value) for value in model.graph.output)
    opset = max(
        (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")),
        default=0,
    )
    return GraphReport(inputs, outputs, opset, model.ir_version, _why_not((*inputs, *outputs)))


def differences(report: GraphReport, config: ModelConfig) -> list[str]:
    """Where graph and configuration disagree; empty when they agree."""
    found = []
    if config.batched and report.why_not_batchable:
        found.append(f"max_batch_size is {config.max_batch_size}, but {report.why_not_batchable}")
    for what, specs, tensors in (
        ("input", config.inputs, report.inputs),
        ("output", config.outputs, report.outputs),
    ):
        known = {tensor.name: tensor for tensor in tensors}
        if {spec.name for spec in specs} != set(known):
            found.append(
                f"{what}s are {', '.join(s.name for s in specs)} in the configuration "
                f"and {', '.join(known)} in the graph"
            )
            continue
        found.extend(
            f"{what} {spec.name!r}: {fault}"
            for spec in specs
            if (fault := _disagreement(config, spec, known[spec.name]))
        )
    return found


def _disagreement(config: ModelConfig, spec: TensorSpec, tensor: GraphTensor) -> str:
    if spec.datatype != tensor.datatype:
        return f"{spec.datatype} in the configuration, {tensor.datatype} in the graph"
    declared = config.wire_dims(spec)
    # A free axis in the configuration is a promise that a fixed axis of the graph cannot keep.
    fits = len(declared) == len(tensor.dims) and all(
        isinstance(axis, str) or want == axis
        for want, axis in zip(declared, tensor.dims, strict=True)
    )
    return "" if fits else f"shape {list(declared)} in the configuration, {list(tensor.dims)} there"


def _tensor(value: onnx.ValueInfoProto) -> GraphTensor:
    if not value.type.HasField("tensor_type"):
        raise ModelError(
            f"{value.name!r} is a {value.type.WhichOneof('value')}, not a tensor",
            hint="Export the model again with plain tensors as inputs and outputs.",
        )
    kind = value.type.tensor_type
    dims = tuple(
        axis.dim_value if axis.HasField("dim_value") else axis.dim_param or "?"
        for axis in kind.shape.dim
    )
    return GraphTensor(value.name, _datatype(value.name, kind.elem_type), dims)


def _datatype(tensor: str, kind: int) -> str:
    if kind == onnx.TensorProto.BFLOAT16:
        return "BF16"
    try:
        return DATATYPES[onnx.helper.tensor_dtype_to_np_dtype(kind)]
    except KeyError:
        names = {number: name for name, number in onnx.TensorProto.DataType.items()}
        raise ModelError(
            f"{tensor!r} is of type {names.get(kind, kind)}, which the protocol cannot carry",
            hint="Export the model again with a cast to one that it can, such as FLOAT.",
        ) from None


def _why_not(tensors: tuple[GraphTensor, ...]) -> str:
    for tensor in tensors:
        if not tensor.dims:
            return f"{tensor.name!r} has no axis at all"
        if isinstance(tensor.dims[0], int):
            return f"{tensor.name!r} starts with an axis of fixed length {tensor.dims[0]}"
    return ""
