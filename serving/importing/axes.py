"""Lengths of the axes that a graph leaves free: one for each name, over all inputs.

ONNX Runtime does not check that two axes of one name are equally long, so whoever makes inputs
must. An axis without a name is called ``input:index``. A name may be a sum, difference or product
of others, such as ``past + 1``; its length is then computed.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from serving.errors import UsageError
from serving.models.inspection import NO_NAME, Dims, GraphTensor

Shape = tuple[int, ...]
Shapes = dict[str, Shape]
Lengths = dict[str, int]
"""By the name of an axis."""

_OPERATORS: Mapping[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
}


@dataclass(frozen=True)
class GivenLengths:
    """What the user says: lengths by axis, and whole shapes by input, batch axis included."""

    axes: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    shapes: Mapping[str, Shape] = field(default_factory=lambda: MappingProxyType({}))


def with_given_ranks(
    inputs: Sequence[GraphTensor], shapes: Mapping[str, Shape]
) -> tuple[GraphTensor, ...]:
    """``inputs``, with free axes where the graph states no shape, as many as ``shapes`` gives.

    Raises:
        UsageError: nothing says how many axes an input has.
    """
    return tuple(_with_rank(tensor, shapes) for tensor in inputs)


def names_of(tensor: GraphTensor) -> Dims:
    """The axes of ``tensor``, each free one with a name; none where their number is unknown.

    A tensor without any axis is served as one of length 1.
    """
    if tensor.dims == ():
        return (1,)
    return tuple(
        f"{tensor.name}:{index}" if axis == NO_NAME else axis
        for index, axis in enumerate(tensor.dims or ())
    )


def leading_axes(inputs: Sequence[GraphTensor]) -> frozenset[str]:
    """Names of free first axes of inputs that have others too: such axes count rows."""
    named = [names_of(tensor) for tensor in inputs]
    return frozenset(a[0] for a in named if len(a) > 1 and isinstance(a[0], str))


def lengths_for(inputs: Sequence[GraphTensor], given: GivenLengths) -> Lengths:
    """A length for every free axis of ``inputs``; 1 for those that count rows, unless given.

    Raises:
        UsageError: a length is missing, or what is given does not fit the graph or contradicts
            itself; the axis is named.
    """
    named = (axis for tensor in inputs for axis in names_of(tensor) if isinstance(axis, str))
    axes = list(dict.fromkeys(named))
    needed = {term for axis in axes for term in _terms(axis, axes)}
    unknown = sorted(given.axes.keys() - needed)
    if unknown:
        raise UsageError(
            f"no input has an axis {unknown[0]!r}",
            hint=f"Free axes: {', '.join(axes) or 'none'}.",
        )
    lengths = dict(given.axes)
    for name, shape in given.shapes.items():
        _bind(_find(name, inputs), shape, lengths)
    for axis in leading_axes(inputs):
        for term in _terms(axis, axes):
            lengths.setdefault(term, 1)
    missing = [axis for axis in axes if axis in needed - lengths.keys()]
    if missing:
        raise _unknown_lengths(missing, inputs)
    for axis in axes:
        computed = _computed(axis, {term: lengths[term] for term in _terms(axis, axes)})
        if lengths.get(axis, computed) != computed:
            raise UsageError(
                f"axis {axis!r} is given as {lengths[axis]} and comes to {computed}",
                hint="Give only the axes that it is computed from.",
            )
    return lengths


def shapes_for(inputs: Sequence[GraphTensor], lengths: Mapping[str, int]) -> Shapes:
    """The shape of every input when the free axes have these ``lengths``.

    Raises:
        UsageError: an axis that is computed from others comes out below 1.
    """
    shapes = {}
    for tensor in inputs:
        shape = tuple(
            axis if isinstance(axis, int) else _computed(axis, lengths) or 0
            for axis in names_of(tensor)
        )
        if any(length < 1 for length in shape):
            raise UsageError(
                f"input {tensor.name!r} {written(tensor)} would be empty: {list(shape)}",
                hint="Give other lengths with --axis, or export it with axes that are not empty.",
            )
        shapes[tensor.name] = shape
    return shapes


def written(tensor: GraphTensor) -> str:
    """The declared shape for a person, such as ``[batch, 3, 224, 224]``."""
    if tensor.dims is None:
        return "of unknown shape"
    return f"[{', '.join(str(axis) for axis in tensor.dims)}]"


def _with_rank(tensor: GraphTensor, shapes: Mapping[str, Shape]) -> GraphTensor:
    if tensor.dims is not None:
        return tensor
    if tensor.name not in shapes:
        raise UsageError(
            f"the graph does not say how many axes input {tensor.name!r} has",
            hint=f"Give its shape, such as --input-shape '{tensor.name}=1,3,224,224'.",
        )
    return GraphTensor(tensor.name, tensor.datatype, (NO_NAME,) * len(shapes[tensor.name]))


def _find(name: str, inputs: Sequence[GraphTensor]) -> GraphTensor:
    for tensor in inputs:
        if tensor.name == name:
            return tensor
    known = ", ".join(tensor.name for tensor in inputs)
    raise UsageError(f"there is no input {name!r}", hint=f"Inputs: {known}.")


def _bind(tensor: GraphTensor, shape: Shape, lengths: Lengths) -> None:
    """Note in ``lengths`` what the axes of ``tensor`` are when it has ``shape``."""
    axes = names_of(tensor)
    where = f"the shape {','.join(map(str, shape))} given for {tensor.name!r}"
    if len(axes) != len(shape):
        raise UsageError(
            f"{where} has {len(shape)} lengths and the graph {written(tensor)}",
            hint="Give one for every axis, the batch axis included.",
        )
    for axis, length in zip(axes, shape, strict=True):
        stated = axis if isinstance(axis, int) else lengths.setdefault(axis, length)
        if stated != length:
            raise UsageError(
                f"{where} says {length} where axis {axis!r} is {stated}",
                hint=f"The graph has it {written(tensor)}; one name, one length over all inputs.",
            )


def _unknown_lengths(axes: Sequence[str], inputs: Sequence[GraphTensor]) -> UsageError:
    owners = {
        axis: f"{axis!r} of input {tensor.name!r} {written(tensor)}"
        for tensor in reversed(inputs)
        for axis in names_of(tensor)
    }
    told = ", ".join(owners[axis] for axis in axes)
    return UsageError(
        f"the length of axis {told} is not known",
        hint=f"Give each, such as --axis '{axes[0]}=128', or real inputs with --sample-inputs.",
    )


def _terms(axis: str, axes: Sequence[str]) -> set[str]:
    """The axes among ``axes`` that the length of ``axis`` is computed from; itself if none."""
    tree = _parsed(axis)
    if tree is None or _evaluated(tree, dict.fromkeys(axes, 1)) is None:
        return {axis}
    return {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} or {axis}


def _computed(axis: str, lengths: Mapping[str, int]) -> int | None:
    if axis in lengths:
        return lengths[axis]
    tree = _parsed(axis)
    return None if tree is None else _evaluated(tree, lengths)


def _parsed(axis: str) -> ast.expr | None:
    try:
        return ast.parse(axis, mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _evaluated(node: ast.expr, lengths: Mapping[str, int]) -> int | None:
    """``None`` when it is more than a sum, difference or product of known names and numbers."""
    match node:
        case ast.Constant(value=int(number)):
            return number
        case ast.Name(id=name):
            return lengths.get(name)
        case ast.BinOp(left=left, op=kind, right=right) if type(kind) in _OPERATORS:
            one, other = _evaluated(left, lengths), _evaluated(right, lengths)
            if one is not None and other is not None:
                return _OPERATORS[type(kind)](one, other)
    return None
