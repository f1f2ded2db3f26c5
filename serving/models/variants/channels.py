"""Channels that stand or fall together: what must shrink with a convolution's filters.

A filter makes one channel of its output. What lies behind it (an activation, a depthwise
convolution, the other side of a sum) has the same channels, and the next convolution has one slice
of weights for each (Fang et al., "DepGraph", CVPR 2023). Where it is not known what an operator
does to channels, they are left whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import onnx
from onnx import numpy_helper

from serving.models.normalise import nodes_of

_KEEPS_CHANNELS = frozenset(
    (
        *("Relu", "Clip", "LeakyRelu", "Elu", "Selu", "Celu", "Sigmoid", "HardSigmoid", "Tanh"),
        *("HardSwish", "Softplus", "Softsign", "Gelu", "Mish", "Erf", "Exp", "Abs", "Neg", "Sqrt"),
        *("Identity", "Dropout", "MaxPool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool"),
    )
)
"""The output has the channels of the first input, each by itself; other inputs are scalars."""
_ELEMENTWISE = frozenset(("Add", "Sub", "Mul", "Div", "Max", "Min", "PRelu"))
_GLOBAL_POOLS = frozenset(("GlobalAveragePool", "GlobalMaxPool"))


class Slot(NamedTuple):
    """An axis of a weight that has one entry for each channel."""

    weight: str
    axis: int


@dataclass(frozen=True)
class ChannelGroup:
    """Channels that are removed together or not at all.

    Attributes:
        width: how many there are.
        filters: the weights that make them; there is at least one.
        slots: every axis that must shrink, those of ``filters`` among them.
        depthwise: outputs of the convolutions that treat each channel by itself.
    """

    width: int
    filters: tuple[Slot, ...]
    slots: tuple[Slot, ...]
    depthwise: tuple[str, ...]


def channel_groups(model: onnx.ModelProto) -> list[ChannelGroup]:
    """Every group of channels that can shrink, in the graph's order.

    The more of the shapes inside the graph are inferred, the more can.
    """
    return _Walk(model).groups()


class _Walk:
    """One pass over the nodes. Tensors of the same channels are joined (union and find)."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self._model = model
        self._weights = {weight.name: tuple(weight.dims) for weight in graph.initializer}
        self._constants = {weight.name: weight for weight in graph.initializer} | {
            node.output[0]: node.attribute[0].t
            for node in graph.node
            if node.op_type == "Constant" and node.attribute[0].HasField("t")
        }
        self._ranks = {
            value.name: len(value.type.tensor_type.shape.dim)
            for value in (*graph.input, *graph.value_info, *graph.output)
        }
        self._makers = {name: node for node in graph.node for name in node.output}
        self._above: dict[str, str] = {}
        self._whole: set[str] = set()
        self._filters: dict[str, list[Slot]] = defaultdict(list)
        self._slots: dict[str, list[Slot]] = defaultdict(list)
        self._depthwise: dict[str, list[str]] = defaultdict(list)

    def groups(self) -> list[ChannelGroup]:
        graph = self._model.graph
        self._leave_whole(value.name for value in (*graph.input, *graph.output))
        for node in graph.node:
            self._visit(node)
        every = list(nodes_of(self._model))
        top = {id(node) for node in graph.node}
        self._leave_whole(name for node in every if id(node) not in top for name in node.input)
        uses = Counter(name for node in every for name in node.input)
        whole = {self._root(name) for name in self._whole}
        shrinkable = []
        for root in dict.fromkeys(self._root(name) for name in self._filters):
            group = self._gather(root)
            lengths = {self._weights[slot.weight][slot.axis] for slot in group.slots}
            shared = any(uses[slot.weight] > 1 for slot in group.slots)
            if root not in whole and not shared and len(lengths) == 1:
                shrinkable.append(group)
        return shrinkable

    def _gather(self, root: str) -> ChannelGroup:
        def of(found: dict[str, list[Slot]]) -> tuple[Slot, ...]:
            return tuple(s for name in found if self._root(name) == root for s in found[name])

        filters = of(self._filters)
        depthwise = [n for name, n in self._depthwise.items() if self._root(name) == root]
        return ChannelGroup(
            width=self._weights[filters[0].weight][filters[0].axis],
            filters=filters,
            slots=of(self._slots),
            depthwise=tuple(name for names in depthwise for name in names),
        )

    def _visit(self, node: onnx.NodeProto) -> None:
        known = node.domain in ("", "ai.onnx")
        if known and node.op_type in ("Conv", "ConvTranspose"):
            self._convolution(node)
        elif known and node.op_type in _KEEPS_CHANNELS:
            self._join(node.input[0], node.output[0])
        elif known and node.op_type == "BatchNormalization":
            self._join(node.input[0], node.output[0])
            self._add_slots(node.output[0], [(name, 0) for name in node.input[1:]])
        elif known and node.op_type in _ELEMENTWISE:
            self._elementwise(node)
        elif known and node.op_type in ("Flatten", "Reshape"):
            self._flattening(node)
        elif known and node.op_type in ("Gemm", "MatMul"):
            self._product(node)
        elif not known or node.op_type != "Shape":
            self._leave_whole((*node.input, *node.output))

    def _convolution(self, node: onnx.NodeProto) -> None:
        x, weight, *bias = node.input
        y = node.output[0]
        dims = self._weights.get(weight, ())
        groups = _integer(node, "group", 1)
        if dims and groups == 1:
            made, read = (1, 0) if node.op_type == "ConvTranspose" else (0, 1)
            self._filters[y].append(Slot(weight, made))
            self._add_slots(y, [(weight, made)])
            self._add_slots(x, [(weight, read)])
        elif dims and dims[:2] == (groups, 1):
            self._join(x, y)
            self._add_slots(y, [(weight, 0)])
            self._depthwise[y].append(y)
        else:
            self._leave_whole((x, y))
        self._add_slots(y, [(name, 0) for name in bias])

    def _elementwise(self, node: onnx.NodeProto) -> None:
        """Operands of one rank have their channels side by side; constants are laid beside them."""
        y = node.output[0]
        tensors = [name for name in node.input if name not in self._constants]
        rank = self._ranks.get(y)
        if rank is None or any(self._ranks.get(name) != rank for name in tensors):
            self._leave_whole((*tensors, y))
            return
        self._join(y, *tensors)
        for name in (name for name in node.input if name in self._constants):
            dims = self._constants[name].dims
            axis = len(dims) - (rank - 1)
            longer = [place for place, length in enumerate(dims) if length > 1]
            if longer == [axis]:
                self._add_slots(y, [(name, axis)])
            elif longer:
                self._leave_whole((y,))

    def _flattening(self, node: onnx.NodeProto) -> None:
        """Behind a global pool each channel is one number, whatever the new shape is written as."""
        x, y = node.input[0], node.output[0]
        pooled = x in self._makers and self._makers[x].op_type in _GLOBAL_POOLS
        fixed = any(self._states_a_length(name) for name in node.input[1:])
        if pooled and not fixed and _integer(node, "axis", 1) == 1:
            self._join(x, y)
        else:
            self._leave_whole((x, y))

    def _states_a_length(self, shape: str) -> bool:
        if shape in self._constants:
            return bool((numpy_helper.to_array(self._constants[shape]) > 1).any())
        maker = self._makers.get(shape)
        parts = maker.input if maker is not None and maker.op_type == "Concat" else ()
        return any(self._states_a_length(part) for part in parts)

    def _product(self, node: onnx.NodeProto) -> None:
        """A fully connected layer has one row of weights for each channel."""
        x, weight = node.input[:2]
        flat = node.op_type == "Gemm" or self._ranks.get(x) == 2
        if flat and not _integer(node, "transA", 0) and len(self._weights.get(weight, ())) == 2:
            self._add_slots(x, [(weight, _integer(node, "transB", 0))])
        else:
            self._leave_whole((x, weight))
        self._leave_whole(node.output)

    def _add_slots(self, tensor: str, places: Sequence[tuple[str, int]]) -> None:
        for name, axis in places:
            if name in self._weights:
                self._slots[tensor].append(Slot(name, axis))
            elif name:
                self._leave_whole((tensor,))

    def _leave_whole(self, tensors: Iterable[str]) -> None:
        self._whole.update(tensors)

    def _join(self, first: str, *others: str) -> None:
        for other in others:
            self._above[self._root(other)] = self._root(first)

    def _root(self, name: str) -> str:
        while self._above.get(name, name) != name:
            name = self._above[name]
        return name


def _integer(node: onnx.NodeProto, name: str, default: int) -> int:
    return next((item.i for item in node.attribute if item.name == name), default)
