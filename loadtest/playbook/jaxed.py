"""An ONNX graph as a JAX function, for the operators that networks of one batch size come to.

The graph is first simplified for one row, which folds everything that only computes shapes. What an
operator means is the ONNX specification's (``Operators.md``, opset 17).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxsim
from onnx import numpy_helper

from serving.errors import ModelError
from serving.models.repository import Model

Attributes = Mapping[str, Any]
Operator = Callable[[Any, Sequence[Any], Attributes], Any]
"""From ``jax``, the inputs and the attributes to the output, or a tuple of outputs."""


def _filled(inputs: Sequence[Any], count: int) -> list[Any]:
    """``None`` for those at the end that were left out."""
    return [*inputs, *[None] * (count - len(inputs))]


def _conv(jax: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    data, weights, bias = _filled(inputs, 3)
    rank = weights.ndim - 2
    _require("Conv", attributes, auto_pad=b"NOTSET")
    ends = attributes.get("pads", [0] * 2 * rank)
    out = jax.lax.conv_general_dilated(
        data,
        weights,
        window_strides=attributes.get("strides", [1] * rank),
        padding=list(zip(ends[:rank], ends[rank:], strict=True)),
        rhs_dilation=attributes.get("dilations", [1] * rank),
        feature_group_count=attributes.get("group", 1),
    )
    return out if bias is None else out + bias.reshape(1, -1, *([1] * rank))


def _gemm(_jax: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    a, b, c = _filled(inputs, 3)
    a = a.T if attributes.get("transA") else a
    b = b.T if attributes.get("transB") else b
    product = attributes.get("alpha", 1.0) * (a @ b)
    return product if c is None else product + attributes.get("beta", 1.0) * c


def _gru(jax: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    """One direction, gates z, r, h; returns all states and the last."""
    data, weights, recurrence, bias, _, state = _filled(inputs, 6)
    linear = bool(attributes.get("linear_before_reset", 0))
    _require("GRU", attributes, direction=b"forward")
    size = attributes["hidden_size"]
    w, r, b = weights[0].T, recurrence[0].T, bias[0]
    hidden = state[0] if state is not None else np.zeros((data.shape[1], size), np.float32)
    states = []
    for row in data:
        x = row @ w + b[: 3 * size]
        h = hidden @ r + b[3 * size :]
        update = jax.nn.sigmoid(x[:, :size] + h[:, :size])
        reset = jax.nn.sigmoid(x[:, size : 2 * size] + h[:, size : 2 * size])
        if linear:
            again = reset * h[:, 2 * size :]
        else:
            again = (reset * hidden) @ r[:, 2 * size :] + b[5 * size :]
        hidden = (1 - update) * jax.numpy.tanh(x[:, 2 * size :] + again) + update * hidden
        states.append(hidden[None])
    return jax.numpy.stack(states), hidden[None]


def _clip(jax: Any, inputs: Sequence[Any], _attributes: Attributes) -> Any:
    data, low, high = _filled(inputs, 3)
    return jax.numpy.clip(data, low, high)


def _pad(jax: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    _require("Pad", attributes, mode=b"constant")
    data, ends = inputs[0], np.asarray(inputs[1]).tolist()
    value = inputs[2] if len(inputs) > 2 and inputs[2] is not None else 0
    widths = list(zip(ends[: data.ndim], ends[data.ndim :], strict=True))
    return jax.numpy.pad(data, widths, constant_values=value)


def _squeeze(jax: Any, inputs: Sequence[Any], _attributes: Attributes) -> Any:
    return jax.numpy.squeeze(inputs[0], tuple(np.asarray(inputs[1]).tolist()))


def _unsqueeze(jax: Any, inputs: Sequence[Any], _attributes: Attributes) -> Any:
    return jax.numpy.expand_dims(inputs[0], tuple(np.asarray(inputs[1]).tolist()))


def _flatten(_jax: Any, inputs: Sequence[Any], attributes: Attributes) -> Any:
    lead = int(np.prod(inputs[0].shape[: attributes.get("axis", 1)]))
    return inputs[0].reshape(lead, -1)


def _global_average(_jax: Any, inputs: Sequence[Any], _attributes: Attributes) -> Any:
    return inputs[0].mean(axis=tuple(range(2, inputs[0].ndim)), keepdims=True)


OPERATORS: Mapping[str, Operator] = {
    "Add": lambda _jax, inputs, _: inputs[0] + inputs[1],
    "Clip": _clip,
    "Conv": _conv,
    "Flatten": _flatten,
    "GRU": _gru,
    "Gemm": _gemm,
    "GlobalAveragePool": _global_average,
    "MatMul": lambda _jax, inputs, _: inputs[0] @ inputs[1],
    "Mul": lambda _jax, inputs, _: inputs[0] * inputs[1],
    "Pad": _pad,
    "Relu": lambda jax, inputs, _: jax.nn.relu(inputs[0]),
    "Reshape": lambda _jax, inputs, _: inputs[0].reshape(np.asarray(inputs[1]).tolist()),
    "Sigmoid": lambda jax, inputs, _: jax.nn.sigmoid(inputs[0]),
    "Squeeze": _squeeze,
    "Sub": lambda _jax, inputs, _: inputs[0] - inputs[1],
    "Tanh": lambda jax, inputs, _: jax.numpy.tanh(inputs[0]),
    "Transpose": lambda jax, inputs, at: jax.numpy.transpose(inputs[0], at.get("perm")),
    "Unsqueeze": _unsqueeze,
}


def graph_of(model: Model) -> onnx.ModelProto:
    """The model's graph for one row, simplified.

    Raises:
        ModelError: it has an axis of no fixed length besides the batch, or an operator that is not
            among ``OPERATORS``.
    """
    if any(-1 in spec.dims for spec in model.config.inputs):
        raise ModelError(
            f"{model.name} has an axis of no fixed length", hint="JAX compiles for one shape."
        )
    lead = [1] if model.config.batched else []
    shapes = {spec.name: [*lead, *spec.dims] for spec in model.config.inputs}
    graph: onnx.ModelProto
    graph, _ = onnxsim.simplify(onnx.load(model.file), overwrite_input_shapes=shapes)
    unknown = sorted({node.op_type for node in graph.graph.node} - {*OPERATORS, "Constant"})
    if unknown:
        raise ModelError(
            f"{model.name} has operators without a translation to JAX: {', '.join(unknown)}",
            hint="loadtest/playbook/jaxed.py has those that are known.",
        )
    return graph


def function_of(graph: onnx.ModelProto, jax: Any) -> Callable[..., tuple[Any, ...]]:
    """From arrays in the order of the graph's inputs to its outputs in their order."""
    constants = {one.name: numpy_helper.to_array(one) for one in graph.graph.initializer}
    for node in graph.graph.node:
        if node.op_type == "Constant":
            constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
    # Weights lie on the device, as they would in anybody's JAX; whole numbers are shapes and axes.
    known = {
        name: jax.numpy.asarray(array) if array.dtype.kind == "f" else array
        for name, array in constants.items()
    }
    nodes = [
        (OPERATORS[node.op_type], tuple(node.input), tuple(node.output), _attributes_of(node))
        for node in graph.graph.node
        if node.op_type != "Constant"
    ]
    names = [one.name for one in graph.graph.input if one.name not in known]

    def run(*arrays: Any) -> tuple[Any, ...]:
        values = {**known, **dict(zip(names, arrays, strict=True))}
        for operator, inputs, outputs, attributes in nodes:
            got = operator(jax, [values[name] if name else None for name in inputs], attributes)
            several = got if isinstance(got, tuple) else (got,)
            values.update(zip(outputs, several, strict=False))
        return tuple(values[one.name] for one in graph.graph.output)

    return run


def _attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    return {one.name: onnx.helper.get_attribute_value(one) for one in node.attribute}


def _require(operator: str, attributes: Attributes, **only: object) -> None:
    """Raises ModelError where an attribute has another value than the one that is known."""
    for name, value in only.items():
        if attributes.get(name, value) != value:
            raise ModelError(
                f"{operator} with {name}={attributes[name]!r} has no translation to JAX",
                hint="loadtest/playbook/jaxed.py has what is known.",
            )
