"""A quantisation-aware model that its authors trained and exported: QDQ nodes and all."""

from __future__ import annotations

from pathlib import Path

import onnx

from serving.errors import ModelError, UsageError
from serving.models.variants.kind import Kind, Order, save


def quantisers(file: Path) -> int:
    """How many QuantizeLinear and DequantizeLinear pairs lie in a file, by the former."""
    graph = onnx.load(file, load_external_data=False).graph
    return sum(node.op_type == "QuantizeLinear" for node in graph.node)


def _make(order: Order, target: Path) -> str:
    if order.brought is None:
        raise UsageError("a variant of kind qat is a file of yours", hint="Name it with --from.")
    if not order.brought.is_file():
        raise ModelError(f"there is no file {order.brought}", hint="Name an ONNX file with --from.")
    model = onnx.load(order.brought)
    save(model, target)
    count = quantisers(target)
    if not count:
        raise ModelError(
            f"{order.brought} has no QuantizeLinear node, so it is not quantisation-aware",
            hint="Export it with its fake-quantise steps as QDQ nodes, opset 13 or newer.",
        )
    return f"{order.brought.name} as brought, {count} quantised tensors"


KIND = Kind("qat", _make, frozenset(("brought",)))
