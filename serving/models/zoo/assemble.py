"""A graph written as text in ONNX's own syntax, filled with trained weights."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper, parser

from serving.protocol import Array


def write_graph(text: str, weights: Mapping[str, Array], target: Path) -> None:
    """Write the graph of ``text`` (https://onnx.ai/onnx/repo-docs/Syntax.html) to ``target``.

    Tensors that ``text`` reads and no node makes come from ``weights``, by name; a missing one, or
    one of a shape that does not fit, is an error of onnx's checker.
    """
    model = parser.parse_model(text)
    model.graph.initializer.extend(
        numpy_helper.from_array(np.ascontiguousarray(array), name)
        for name, array in weights.items()
    )
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, target)
