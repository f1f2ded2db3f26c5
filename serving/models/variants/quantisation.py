"""What the quantised kinds share: the graph they start from, and calibration inputs handed on."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
import onnx.version_converter

from serving.errors import ModelError
from serving.models.variants.kind import Order, save

if TYPE_CHECKING:
    from onnxruntime.quantization import CalibrationDataReader


_OPSET = 13
"""The first whose quantised weights may have a scale for each channel."""


@contextmanager
def prepared(source: Path) -> Iterator[Path]:
    """A copy with constants folded and BatchNormalization inside the convolutions.

    By ONNX Runtime's basic level, which is the same on every machine.
    """
    from onnxruntime.quantization.shape_inference import quant_pre_process  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="infersweep-") as folder:
        target, newer = Path(folder) / source.name, Path(folder) / "newer.onnx"
        model = onnx.load(source)
        if _opset(model) < _OPSET:
            save(onnx.version_converter.convert_version(model, _OPSET), newer)
            source = newer
        quant_pre_process(source, target, skip_symbolic_shape=True)
        yield target


def _opset(model: onnx.ModelProto) -> int:
    return max(item.version for item in model.opset_import if item.domain in ("", "ai.onnx"))


def reader(order: Order) -> CalibrationDataReader:
    """The calibration inputs, one after the other.

    Raises:
        ModelError: there are none.
    """
    from onnxruntime.quantization import CalibrationDataReader  # noqa: PLC0415

    if not order.calibration:
        raise ModelError(
            f"model {order.parent.name!r} has no real inputs to calibrate on",
            hint="Give a folder or an .npz of them with --calibration.",
        )

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self._left = iter(order.calibration)

        def get_next(self) -> dict[str, object] | None:
            sample = next(self._left, None)
            return None if sample is None else dict(sample.inputs)

    return Reader()
