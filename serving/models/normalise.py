"""Make a graph fit to serve: weights out of its inputs, plain names, axes that may vary.

Each function changes the given model in place; compose them as a model needs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import onnx

AxisNames = Sequence[str | int]
_IR_WITH_PLAIN_WEIGHTS = 4


def drop_initializers_from_inputs(model: onnx.ModelProto) -> int:
    """Take weights out of the graph's inputs; returns how many there were.

    A weight that is also an input may be overridden by a caller, so the runtime must not fold it
    into its neighbours (ONNX IR specification, "Graphs").
    """
    weights = {weight.name for weight in model.graph.initializer}
    kept = [value for value in model.graph.input if value.name not in weights]
    dropped = len(model.graph.input) - len(kept)
    del model.graph.input[:]
    model.graph.input.extend(kept)
    # Older versions of the format demand that every weight is an input.
    model.ir_version = max(model.ir_version, _IR_WITH_PLAIN_WEIGHTS)
    return dropped


def drop_unused_initializers(model: onnx.ModelProto) -> int:
    """Take out weights that no node reads; returns how many there were."""
    used = {name for node in _nodes(model.graph) for name in node.input}
    used.update(value.name for value in model.graph.output)
    kept = [weight for weight in model.graph.initializer if weight.name in used]
    dropped = len(model.graph.initializer) - len(kept)
    del model.graph.initializer[:]
    model.graph.initializer.extend(kept)
    return dropped


def rename(model: onnx.ModelProto, names: Mapping[str, str]) -> None:
    """Give tensors new names, wherever they stand."""
    graph = model.graph
    for value in (*graph.input, *graph.output, *graph.value_info):
        value.name = names.get(value.name, value.name)
    for weight in graph.initializer:
        weight.name = names.get(weight.name, weight.name)
    for node in _nodes(graph):
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]


def set_axes(model: onnx.ModelProto, axes: Mapping[str, AxisNames]) -> None:
    """State the shape of inputs and outputs: a number is fixed, a word may vary.

    Shapes noted inside the graph are dropped, since they were inferred from the old ones.
    """
    for value in (*model.graph.input, *model.graph.output):
        if value.name not in axes:
            continue
        shape = value.type.tensor_type.shape
        del shape.dim[:]
        for axis in axes[value.name]:
            if isinstance(axis, int):
                shape.dim.add(dim_value=axis)
            else:
                shape.dim.add(dim_param=axis)
    del model.graph.value_info[:]


def nodes_of(model: onnx.ModelProto) -> Iterator[onnx.NodeProto]:
    """Every node, those inside branches, loops and the model's own functions too."""
    yield from _nodes(model.graph)
    for function in model.functions:
        yield from _nodes(function)


def _nodes(body: onnx.GraphProto | onnx.FunctionProto) -> Iterator[onnx.NodeProto]:
    """Every node, those inside branches and loops too: they read the outer graph's tensors."""
    for node in body.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)
