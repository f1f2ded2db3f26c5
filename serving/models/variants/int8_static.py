"""Weights and activations in INT8 between QDQ nodes, ranges taken from real inputs beforehand.

Jacob et al., "Quantization and Training of Neural Networks for Efficient Integer-Arithmetic-Only
Inference" (CVPR 2018).
"""

from __future__ import annotations

from pathlib import Path

from serving.errors import ModelError
from serving.models.variants.kind import Kind, Order
from serving.models.variants.qat import quantisers
from serving.models.variants.quantisation import prepared, reader


def _make(order: Order, target: Path) -> str:
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_static  # noqa: PLC0415

    with prepared(order.parent.file) as source:
        # Unsigned activations and signed weights have the fast kernels on x86 processors; both
        # unsigned took 10 times as long here. Without VNNI their sums saturate: docs/variants.md.
        quantize_static(
            source,
            target,
            reader(order),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
    count = quantisers(target)
    if not count:
        raise ModelError(
            f"model {order.parent.name!r} has no operator that int8-static quantises",
            hint="Try int8-dynamic, or serve it as it is.",
        )
    return f"{count} quantised tensors, calibrated on {order.calibration_source}"


KIND = Kind("int8-static", _make, frozenset(("calibration",)))
