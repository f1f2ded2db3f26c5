"""The parent's graph on TensorRT in a lower precision: only ``config.pbtxt`` differs.

The engine is built at the first load, within the workspace stated; ``serving.engine_cache`` keeps
it. For INT8 the ranges of all tensors are written beside the model, from real inputs.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tritonclient.grpc import model_config_pb2 as schema

from serving.models.variants.kind import Kind, Order
from serving.models.variants.quantisation import reader

_TABLE = "calibration.flatbuffers"


def _copy(order: Order, target: Path) -> str:
    """All files of the version's folder, since weights may lie beside the graph."""
    shutil.copytree(order.parent.file.parent, target.parent, dirs_exist_ok=True)
    return "the parent's graph, engine built in FP16"


def _copy_and_calibrate(order: Order, target: Path) -> str:
    from onnxruntime.quantization import CalibrationMethod, create_calibrator  # noqa: PLC0415
    from onnxruntime.quantization.quant_utils import write_calibration_table  # noqa: PLC0415

    inputs = reader(order)
    _copy(order, target)
    with tempfile.TemporaryDirectory(prefix="infersweep-") as folder:
        calibrator = create_calibrator(
            target,
            augmented_model_path=f"{folder}/augmented.onnx",
            calibrate_method=CalibrationMethod.Entropy,
            providers=["CPUExecutionProvider"],
        )
        calibrator.collect_data(inputs)
        write_calibration_table(calibrator.compute_data().data, dir=folder)
        shutil.copyfile(Path(folder) / _TABLE, target.parent / _TABLE)
    return f"the parent's graph, engine built in INT8, calibrated on {order.calibration_source}"


def _configure(message: schema.ModelConfig, order: Order, precision: str) -> None:
    kind = schema.ModelInstanceGroup.KIND_GPU
    gpus = sorted({gpu for group in message.instance_group for gpu in group.gpus}) or [0]
    del message.instance_group[:]
    message.instance_group.add(count=1, kind=kind, gpus=gpus[:1])
    accelerators = message.optimization.execution_accelerators
    accelerators.Clear()
    tensorrt = accelerators.gpu_execution_accelerator.add(name="tensorrt")
    tensorrt.parameters["precision_mode"] = precision
    if order.workspace_bytes:
        tensorrt.parameters["max_workspace_size_bytes"] = str(order.workspace_bytes)
    if precision == "INT8":
        tensorrt.parameters["int8_calibration_table_name"] = _TABLE


def _for_fp16(message: schema.ModelConfig, order: Order) -> None:
    _configure(message, order, "FP16")


def _for_int8(message: schema.ModelConfig, order: Order) -> None:
    _configure(message, order, "INT8")


FP16 = Kind("tensorrt-fp16", _copy, frozenset(("workspace_bytes",)), _for_fp16)
INT8 = Kind(
    "tensorrt-int8",
    _copy_and_calibrate,
    frozenset(("workspace_bytes", "calibration")),
    _for_int8,
)
