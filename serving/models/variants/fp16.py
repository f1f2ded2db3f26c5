"""Weights and computation in half precision; inputs and outputs stay as they were."""

from __future__ import annotations

import tempfile
from pathlib import Path

import onnx

from serving.models.accelerators import CPU
from serving.models.execution import Execution
from serving.models.variants.kind import Kind, Order, save

SLOWER = 1.05
"""Times the parent's time: above that it is no chance of the clock."""


def _make(order: Order, target: Path) -> str:
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415

    model = convert_float_to_float16(onnx.load(order.parent.file), keep_io_types=True)
    save(model, target)
    return f"{_with_half_weights(model)} operators with weights in FP16"


def _objection(file: Path, execution: Execution, time_ratio: float) -> str:
    took = f"it takes {time_ratio:.2f} times its parent's time"
    if execution.providers == (CPU,):
        written = _with_half_weights(onnx.load(file, load_external_data=False))
        run = _with_half_weights(_as_run(file))
        if not run:
            return (
                f"{CPU} has no FP16 kernel for any of its {written} operators with weights and "
                f"runs them in FP32 without a word; {took}"
            )
    return took + f" on {execution.providers[0]}" if time_ratio > SLOWER else ""


def _as_run(file: Path) -> onnx.ModelProto:
    """The graph after ONNX Runtime has prepared it for the CPU, with the casts that it put in."""
    import onnxruntime  # noqa: PLC0415  (only making a variant needs it here)

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    with tempfile.TemporaryDirectory(prefix="infersweep-") as folder:
        prepared = Path(folder) / file.name
        options.optimized_model_filepath = str(prepared)
        onnxruntime.InferenceSession(str(file), options, providers=[CPU])
        return onnx.load(prepared)


def _with_half_weights(model: onnx.ModelProto) -> int:
    halves = {
        weight.name
        for weight in model.graph.initializer
        if weight.data_type == onnx.TensorProto.FLOAT16
    }
    return sum(
        node.op_type != "Cast" and not halves.isdisjoint(node.input) for node in model.graph.node
    )


KIND = Kind("fp16", _make, objection=_objection)
