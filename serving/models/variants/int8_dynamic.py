"""Weights in INT8, the range of each activation taken while it runs."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import onnx

from serving.errors import ModelError
from serving.models.variants.kind import Kind, Order
from serving.models.variants.quantisation import prepared


def _make(order: Order, target: Path) -> str:
    from onnxruntime.quantization import QuantType, quantize_dynamic  # noqa: PLC0415
    from onnxruntime.quantization.registry import IntegerOpsRegistry  # noqa: PLC0415

    # A Conv in integers with ranges taken while it runs is slower than in FP32: docs/variants.md.
    operators = [name for name in IntegerOpsRegistry if name != "Conv"]
    with prepared(order.parent.file) as source:
        before = _operators(source)
        quantize_dynamic(
            source, target, op_types_to_quantize=operators, weight_type=QuantType.QInt8
        )
    replaced = before - _operators(target)
    if not replaced:
        raise ModelError(
            f"model {order.parent.name!r} has no operator that int8-dynamic quantises",
            hint=f"It quantises {', '.join(sorted(operators))}; for Conv take int8-static.",
        )
    told = ", ".join(f"{count} {name}" for name, count in sorted(replaced.items()))
    left = f", {before['Conv']} Conv left in FP32" if before["Conv"] else ""
    return f"{told} quantised{left}"


def _operators(file: Path) -> Counter[str]:
    graph = onnx.load(file, load_external_data=False).graph
    return Counter(node.op_type for node in graph.node)


KIND = Kind("int8-dynamic", _make)
