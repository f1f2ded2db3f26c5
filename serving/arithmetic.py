"""How much a model computes: floating point operations of one inference, and bytes it must move.

ONNX Runtime's profile of one run tells the shapes that every operator really had, inside loops and
branches too (https://onnxruntime.ai/docs/performance/tune-performance/profiling-tools.html). A
multiplication with its addition counts as two operations, on integers too. Products of matrices,
convolutions, recurrent layers and attention are counted; all else is named, not guessed.
"""

from __future__ import annotations

import json
import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import onnxruntime

from serving.errors import ModelError
from serving.importing.staging import size_bytes
from serving.marshalling import bind
from serving.models.repository import Model
from serving.protocol import Array

Shape = Sequence[int]
_NOTHING_LOGGED = 4
_CONTAINERS = frozenset({"If", "Loop", "Scan"})
"""What is inside them is listed on its own."""
_MOVES = frozenset(
    (
        *("Cast", "Concat", "Constant", "ConstantOfShape", "DepthToSpace", "Expand", "Flatten"),
        *("Gather", "GatherElements", "GatherND", "Identity", "Pad", "Range", "Reshape"),
        *("ReverseSequence", "ScatterElements", "ScatterND", "Shape", "Size", "Slice"),
        *("SpaceToDepth", "Split", "Squeeze", "Tile", "Transpose", "Unsqueeze", "Where"),
    )
)
"""Operators that compute nothing."""


@dataclass(frozen=True)
class Arithmetic:
    """What one inference takes.

    Attributes:
        flops: of the operators that are ``counted``.
        counted: how many operators ran that are counted.
        moving: how many ran that compute nothing, such as a transposition.
        uncounted: others that ran, by kind.
        weight_bytes: of all files of the version.
        tensor_bytes: of the inputs and outputs.
    """

    flops: int
    counted: int
    moving: int
    uncounted: Mapping[str, int]
    weight_bytes: int
    tensor_bytes: int

    @property
    def operators(self) -> int:
        return self.counted + self.moving + sum(self.uncounted.values())

    def intensity(self, rows: int = 1) -> float:
        """Operations per byte of weights, inputs and outputs, each moved once.

        For ``rows`` such inferences in one batch, which share the weights.
        """
        return rows * self.flops / (self.weight_bytes + rows * self.tensor_bytes)


def measure(model: Model, inputs: Mapping[str, Array]) -> Arithmetic:
    """Run the newest version of ``model`` once on the CPU and count.

    Raises:
        ModelError: it does not run there.
        ProtocolError: it refuses ``inputs``.
    """
    with tempfile.TemporaryDirectory() as folder:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _NOTHING_LOGGED
        options.intra_op_num_threads = 1
        options.enable_profiling = True
        options.profile_file_prefix = f"{folder}/profile"
        # The operators as the file has them, and no time for packing weights that are used once.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.add_session_config_entry("session.disable_prepacking", "1")
        try:
            runtime = onnxruntime.InferenceSession(
                str(model.file), options, providers=["CPUExecutionProvider"]
            )
        except Exception as error:
            # ONNX Runtime's exceptions share no base class.
            raise ModelError(
                f"model {model.name!r} cannot be counted: {str(error).splitlines()[0]}",
                hint="Only what runs on the CPU can.",
            ) from None
        outputs = bind(runtime, model.config, onnxruntime.RunOptions())(inputs)
        events = json.loads(Path(runtime.end_profiling()).read_bytes())
    tensor_bytes = sum(array.nbytes for array in (*inputs.values(), *outputs))
    return count(events, size_bytes(model, model.version), tensor_bytes)


def count(events: Iterable[Mapping[str, Any]], weight_bytes: int, tensor_bytes: int) -> Arithmetic:
    """Add up the operators of a profile."""
    flops = counted = moving = 0
    uncounted: Counter[str] = Counter()
    for event in events:
        kind = event.get("args", {}).get("op_name")
        if event.get("cat") != "Node" or kind is None or kind in _CONTAINERS:
            continue
        if kind in _MOVES:
            moving += 1
        elif kind in _FORMULAS:
            given, found = (_shapes(event["args"][f"{side}_type_shape"]) for side in _SIDES)
            flops += 2 * _FORMULAS[kind](given, found[0])
            counted += 1
        else:
            uncounted[kind] += 1
    others = dict(uncounted.most_common())
    return Arithmetic(flops, counted, moving, others, weight_bytes, tensor_bytes)


_SIDES = ("input", "output")


def _shapes(typed: Sequence[Mapping[str, Shape]]) -> list[Shape]:
    return [next(iter(one.values())) for one in typed]


def _convolution(weight: int) -> Callable[[Sequence[Shape], Shape], int]:
    """Weights [filters, channels of a group, *kernel] stand at input ``weight``."""
    return lambda given, found: math.prod(found) * math.prod(given[weight][1:])


def _transposed_convolution(given: Sequence[Shape], _: Shape) -> int:
    return math.prod(given[0]) * math.prod(given[1][1:])


def _product(given: Sequence[Shape], found: Shape) -> int:
    return math.prod(found) * given[0][-1]


def _gemm(given: Sequence[Shape], found: Shape) -> int:
    # Whichever way the left matrix stands, it has found[0] rows.
    return math.prod(found) * math.prod(given[0]) // max(1, found[0])


def _recurrent(given: Sequence[Shape], _: Shape) -> int:
    """Input [steps, batch, width]; weights and recurrent weights are used at every step."""
    return math.prod(given[0][:2]) * (math.prod(given[1]) + math.prod(given[2]))


def _attention(given: Sequence[Shape], found: Shape) -> int:
    """Scores of queries and keys, then their products with values; heads apart or in one axis.

    With a matrix as its second input it projects its first to all three before.
    """
    query, key = given[0], given[1]
    if len(key) == 2:
        projected = math.prod(query) * key[1]
        return projected + 2 * query[0] * query[1] ** 2 * found[-1]
    heads_apart = len(query) == 4
    steps = (query[-2], key[-2])
    width = math.prod(query[1::2]) if heads_apart else query[-1]
    width += math.prod(found[1::2]) if heads_apart else found[-1]
    return query[0] * steps[0] * steps[1] * width


_FORMULAS: Mapping[str, Callable[[Sequence[Shape], Shape], int]] = {
    "Conv": _convolution(1),
    "FusedConv": _convolution(1),
    "ConvInteger": _convolution(1),
    "QLinearConv": _convolution(3),
    "ConvTranspose": _transposed_convolution,
    "Gemm": _gemm,
    "MatMul": _product,
    "MatMulInteger": _product,
    "QLinearMatMul": _product,
    "LSTM": _recurrent,
    "GRU": _recurrent,
    "RNN": _recurrent,
    "Attention": _attention,
    "MultiHeadAttention": _attention,
}
"""Multiplications of an operator, from the shapes of its inputs and of its first output."""
