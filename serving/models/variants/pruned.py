"""Whole channels of convolutions removed, those of the smallest L1 norm, and not trained again.

Li et al., "Pruning Filters for Efficient ConvNets" (ICLR 2017).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from serving.errors import ModelError, UsageError
from serving.models.variants.channels import ChannelGroup, channel_groups
from serving.models.variants.kind import Kind, Order, save
from serving.models.variants.simplified import simplify
from serving.protocol import Array

_MULTIPLE = 8
"""Kernels work on blocks of channels: another width would leave the fast ones."""

Weights = Mapping[str, onnx.TensorProto]


def prune(model: onnx.ModelProto, ratio: float) -> tuple[int, int]:
    """Remove ``ratio`` of each group's channels in place; returns removed and all there were."""
    weights = {weight.name: weight for weight in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    removed = total = 0
    for group in channel_groups(model):
        kept = _most_important(weights, group, ratio)
        for name, axis in group.slots:
            narrow = np.take(numpy_helper.to_array(weights[name]), kept, axis=axis)
            weights[name].CopyFrom(numpy_helper.from_array(np.ascontiguousarray(narrow), name))
        for name in group.depthwise:
            next(a for a in makers[name].attribute if a.name == "group").i = len(kept)
        removed += group.width - len(kept)
        total += group.width
    del model.graph.value_info[:]
    return removed, total


def _most_important(weights: Weights, group: ChannelGroup, ratio: float) -> Array:
    """Which channels stay, in their order; a multiple of 8 where there are that many.

    A channel counts by the norms of all weights that make, carry or read it, each over its mean.
    """
    scores = np.zeros(group.width)
    for name, axis in group.slots:
        array = np.abs(numpy_helper.to_array(weights[name]))
        if array.ndim > 1:
            norms = array.sum(axis=tuple(other for other in range(array.ndim) if other != axis))
            scores += norms / max(norms.mean(), np.finfo(np.float32).tiny)
    wanted = group.width * (1 - ratio)
    kept = min(group.width, _MULTIPLE * int(np.ceil(wanted / _MULTIPLE)))
    return np.sort(np.argsort(-scores, kind="stable")[:kept])


def _make(order: Order, target: Path) -> str:
    if not 0 < order.ratio < 1:
        raise UsageError(f"--ratio is {order.ratio:g}", hint="Give a share between 0 and 1.")
    model = simplify(order.parent.file)
    removed, total = prune(model, order.ratio)
    if not removed:
        raise ModelError(
            f"no Conv channel of model {order.parent.name!r} can be removed",
            hint="Channels go by 8 at a time, and only where every operator behind is known.",
        )
    save(model, target)
    return f"{removed} of {total} channels removed (ratio {order.ratio:g}), not trained again"


KIND = Kind("pruned", _make, frozenset(("ratio",)))
