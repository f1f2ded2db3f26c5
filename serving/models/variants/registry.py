"""The registry: one line for each kind of variant."""

from __future__ import annotations

from collections.abc import Mapping

from serving.errors import UsageError
from serving.models.variants import (
    fp16,
    int8_dynamic,
    int8_static,
    pruned,
    qat,
    simplified,
    tensorrt,
)
from serving.models.variants.kind import Kind

KINDS: Mapping[str, Kind] = {
    kind.name: kind
    for kind in (
        fp16.KIND,
        int8_dynamic.KIND,
        int8_static.KIND,
        pruned.KIND,
        simplified.KIND,
        qat.KIND,
        tensorrt.FP16,
        tensorrt.INT8,
    )
}


def resolve_kind(name: str) -> Kind:
    """The kind called ``name``.

    Raises:
        UsageError: there is none, or it is an engine of the FastAPI baseline.
    """
    if name not in KINDS:
        raise UsageError(
            f"there is no kind of variant {name!r}",
            hint=f"Kinds: {', '.join(KINDS)}. Engines of PyTorch are backends: fastapi:ENGINE.",
        )
    return KINDS[name]
