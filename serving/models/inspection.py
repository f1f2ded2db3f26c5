"""What a graph needs and gives, and whether that is what its ``config.pbtxt`` says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import onnx

from serving.errors import ModelError
from serving.models.config import ModelConfig, TensorSpec
from serving.protocol import DATATYPES

Dims = tuple[int | str, ...]
"""Numbers where the length is fixed, words where it may vary; a word of ``?`` has no name."""
NO_NAME = "?"

_NOT_ONNX = "Is the file whole? Other formats must be exported to ONNX first."
_OTHER_KINDS = {
    "sequence_type": "Export it with plain tensors: stack or concatenate the parts of the list",
    "map_type": "Export it with plain tensors instead of a dictionary",
    "optional_type": "Export it with a tensor that is always there",
    "sparse_tensor_type": "Export it with a dense tensor",
}
_DICTIONARIES = (
    "Export it again without ZipMap: convert_sklearn(model, initial_types=..., "
    'options={id(model): {"zipmap": False}})'
)


@dataclass(frozen=True)
class GraphTensor:
    """Attributes: ``dims`` is ``None`` where the graph does not even state the number of axes."""

    name: str
    datatype: str
    dims: Dims | None


@dataclass(frozen=True)
class GraphReport:
    inputs: tuple[GraphTensor, ...]
    outputs: tuple[GraphTensor, ...]
    opset: int
    ir_version: int

    @property
    def why_not_batchable(self) -> str:
        """Empty when the first axis of every tensor is free and may count rows."""
        for tensor in (*self.inputs, *self.outputs):
            why_not = _why_not(tensor)
            if why_not:
                return why_not
        return _repeated(self.inputs)


def read_graph(path: Path) -> onnx.ModelProto:
    """The file as a message; weights that lie in other files stay there.

    Raises:
        ModelError: there is no such file, or it is no ONNX model.
    """
    try:
        model = onnx.load(path, load_external_data=False)
    except FileNotFoundError:
        raise ModelError(f"{path} does not exist", hint="Give the path of a model file.") from None
    except Exception as error:
        # Protobuf raises different classes from release to release.
        raise ModelError(
            f"{path} is no ONNX model: {str(error).splitlines()[0]}", hint=_NOT_ONNX
        ) from None
    if not model.graph.output:
        raise ModelError(f"{path} is no ONNX model: it has no output", hint=_NOT_ONNX)
    return model


def inspect(path: Path) -> GraphReport:
    """Read a graph's inputs and outputs.

    Raises:
        ModelError: the file is no ONNX model, or an input or output is no tensor that travels.
    """
    return describe(read_graph(path))


def describe(model: onnx.ModelProto) -> GraphReport:
    """The same of a model in memory; weights that are listed as inputs are none.

    Raises:
        ModelError: an input or output is no tensor, or of a datatype that does not travel.
    """
    weights = {weight.name for weight in model.graph.initializer}
    inputs = tuple(_tensor(value) for value in model.graph.input if value.name not in weights)
    outputs = tuple(_tensor(value) for value in model.graph.output)
    opset = max(
        (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")),
        default=0,
    )
    return GraphReport(inputs, outputs, opset, model.ir_version)


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
    if tensor.dims is None:
        return ""
    declared = config.wire_dims(spec)
    # A configuration has no word for rank 0 and states one axis of 1 in its place.
    dims = tensor.dims or (1,)
    # A free axis in the configuration is a promise that a fixed axis of the graph cannot keep.
    fits = len(declared) == len(dims) and all(
        isinstance(axis, str) or want == axis for want, axis in zip(declared, dims, strict=True)
    )
    return "" if fits else f"shape {list(declared)} in the configuration, {list(tensor.dims)} there"


def _tensor(value: onnx.ValueInfoProto) -> GraphTensor:
    if not value.type.HasField("tensor_type"):
        raise _not_a_tensor(value)
    kind = value.type.tensor_type
    dims = tuple(_axis(axis) for axis in kind.shape.dim) if kind.HasField("shape") else None
    return GraphTensor(value.name, _datatype(value.name, kind.elem_type), dims)


def _axis(axis: onnx.TensorShapeProto.Dimension) -> int | str:
    # Older exporters write -1 for a length that may vary, and ONNX Runtime reads it so.
    if axis.HasField("dim_value") and axis.dim_value >= 0:
        return int(axis.dim_value)
    return axis.dim_param or NO_NAME


def _not_a_tensor(value: onnx.ValueInfoProto) -> ModelError:
    kind = value.type.WhichOneof("value") or "tensor_type"
    written = _written(value.type)
    mend = _DICTIONARIES if "map(" in written else _OTHER_KINDS.get(kind, "Export it again")
    return ModelError(
        f"{value.name!r} is of type {written}, and only plain tensors can be served",
        hint=f"{mend}.",
    )


def _written(kind: onnx.TypeProto) -> str:
    """The type as ONNX Runtime writes it, such as ``seq(map(int64,tensor(float)))``."""
    match kind.WhichOneof("value"):
        case "tensor_type":
            return f"tensor({_element(kind.tensor_type.elem_type)})"
        case "sequence_type":
            return f"seq({_written(kind.sequence_type.elem_type)})"
        case "map_type":
            key, value = kind.map_type.key_type, _written(kind.map_type.value_type)
            return f"map({_element(key)},{value})"
        case "optional_type":
            return f"optional({_written(kind.optional_type.elem_type)})"
        case "sparse_tensor_type":
            return f"sparse_tensor({_element(kind.sparse_tensor_type.elem_type)})"
    return "nothing"


def _element(number: int) -> str:
    names = {value: name for name, value in onnx.TensorProto.DataType.items()}
    return str(names.get(number, number)).lower()


def _datatype(tensor: str, kind: int) -> str:
    if kind == onnx.TensorProto.BFLOAT16:
        return "BF16"
    try:
        return DATATYPES[onnx.helper.tensor_dtype_to_np_dtype(kind)]
    except KeyError:
        raise ModelError(
            f"{tensor!r} is of type {_element(kind).upper()}, which the protocol cannot carry",
            hint="Export the model again with a cast to one that it can, such as FLOAT.",
        ) from None


def _why_not(tensor: GraphTensor) -> str:
    if tensor.dims is None:
        return ""
    if not tensor.dims:
        return f"{tensor.name!r} has no axis at all"
    if isinstance(tensor.dims[0], int):
        return f"{tensor.name!r} starts with an axis of fixed length {tensor.dims[0]}"
    if len(tensor.dims) == 1:
        return f"{tensor.name!r} has one axis only, and config.pbtxt must state another"
    return ""


def _repeated(inputs: Sequence[GraphTensor]) -> str:
    """Why a first axis that stands elsewhere too cannot count rows."""
    first = {tensor.dims[0] for tensor in inputs if tensor.dims} - {NO_NAME}
    for tensor in inputs:
        again = first & set((tensor.dims or ())[1:])
        if again:
            return f"axis {again.pop()!r} stands inside {tensor.name!r} too"
    return ""
