"""The same computation with fewer operators: constants folded, shapes settled, what is dead gone.

Done by onnxsim, which works on the graph alone: the result is the same on every machine, unlike
that of ONNX Runtime's own offline optimisation above its basic level.
"""

from __future__ import annotations

from pathlib import Path

import onnx

from serving.errors import ModelError
from serving.models.variants.kind import Kind, Order, save

_GROWTH = 1.1


def simplify(file: Path) -> onnx.ModelProto:
    """The simplified graph, the shapes inside it inferred."""
    import onnxsim  # noqa: PLC0415  (only making a variant needs it)

    source = onnx.load(file)
    # Answers are compared with the parent's afterwards, on real inputs.
    simplified: onnx.ModelProto
    simplified, _ = onnxsim.simplify(source, check_n=0)
    if simplified.ByteSize() > _GROWTH * source.ByteSize():
        # Folding wrote out what was kept small, such as quantised weights.
        simplified, _ = onnxsim.simplify(source, check_n=0, skip_constant_folding=True)
    return simplified


def _make(order: Order, target: Path) -> str:
    before = len(onnx.load(order.parent.file, load_external_data=False).graph.node)
    model = simplify(order.parent.file)
    after = len(model.graph.node)
    if after >= before:
        raise ModelError(
            f"there is nothing to simplify in model {order.parent.name!r}: "
            f"{before} operators, and {after} afterwards",
            hint="Serve it as it is.",
        )
    save(model, target)
    return f"{before} operators became {after}, by onnxsim"


KIND = Kind("simplified", _make)
