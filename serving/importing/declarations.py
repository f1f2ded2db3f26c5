"""Shapes of outputs: as the file declares them, as the runtime infers them, as they really are.

Triton's own ONNX Runtime backend demands that ``config.pbtxt`` states for an output exactly what
the runtime infers, and the runtime only warns when an answer is shaped otherwise. So a declaration
that answers contradict is corrected in the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from serving.errors import ModelError
from serving.importing.axes import Shape, written
from serving.models.inspection import NO_NAME, Dims, GraphReport, GraphTensor
from serving.rows import Seen


def as_inferred(
    report: GraphReport, inferred: Mapping[str, tuple[int | str | None, ...]]
) -> GraphReport:
    """``report`` with the outputs' shapes that the runtime has ``inferred``."""
    outputs = tuple(
        replace(tensor, dims=tuple(NO_NAME if axis is None else axis for axis in shape))
        # Of rank 0 and of an unknown number of axes the runtime says the same.
        if (shape := inferred[tensor.name])
        else tensor
        for tensor in report.outputs
    )
    return replace(report, outputs=outputs)


def corrections(outputs: Sequence[GraphTensor], seen: Seen) -> dict[str, Dims]:
    """New shapes for ``outputs`` whose declared one is missing or contradicted.

    Raises:
        ModelError: an output has now this, now that many axes, which no configuration can say.
    """
    corrected = {}
    for tensor in outputs:
        real = [shapes[tensor.name] for _, shapes in seen]
        if len({len(shape) for shape in real}) > 1:
            raise ModelError(
                f"output {tensor.name!r} is {_told(seen, tensor.name)}: not always as many axes",
                hint="Export it with a fixed number of axes.",
            )
        dims = _corrected(tensor, real)
        if dims != tensor.dims:
            corrected[tensor.name] = dims
    return corrected


def describe_corrections(
    outputs: Iterable[GraphTensor], corrected: Mapping[str, Dims], seen: Seen
) -> list[str]:
    """One line for each declaration that was not to be relied on."""
    return [
        f"output {tensor.name!r} is declared {written(tensor)} and is {_told(seen, tensor.name)}: "
        f"the declaration is unreliable; it now says "
        f"{written(replace(tensor, dims=corrected[tensor.name]))}"
        for tensor in outputs
        if tensor.name in corrected
    ]


def _told(seen: Seen, output: str) -> str:
    """Such as ``[2, 2] for 1 row and [6, 2] for 3 rows``."""
    return " and ".join(f"{list(shapes[output])} for {asked}" for asked, shapes in seen)


def _corrected(tensor: GraphTensor, real: Sequence[Shape]) -> Dims:
    free = tuple(f"{tensor.name}_{axis}" for axis in range(len(real[0])))
    if tensor.dims is None or len(tensor.dims) != len(real[0]):
        return free
    return tuple(
        declared
        if isinstance(declared, str) or all(shape[axis] == declared for shape in real)
        else free[axis]
        for axis, declared in enumerate(tensor.dims)
    )
