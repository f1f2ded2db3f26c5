"""How far a variant's answers are from its parent's, on the same inputs. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serving.errors import ModelError
from serving.protocol import Array

Answers = Sequence[Mapping[str, Array]]
"""Output name to array, one mapping for each input."""
Fault = Callable[[str, Mapping[str, Array]], str | None]
"""What is wrong with the outputs for the named input, ``None`` when nothing is."""


@dataclass(frozen=True)
class Accuracy:
    """The measures of ``VariantRecord``, under the same names."""

    inputs: int
    largest_difference: float
    mean_difference: float
    cosine: float
    top1_agreement: float | None
    task_lost: float | None


def compare(
    names: Sequence[str], parent: Answers, variant: Answers, fault: Fault | None
) -> Accuracy:
    """All measures over all inputs, which have ``names``; ``fault`` is the zoo entry's.

    Raises:
        ModelError: an answer of the variant is of another shape, or not finite where the parent's
            is.
    """
    differences, cosines = [], []
    for output in parent[0]:
        columns = zip(names, parent, variant, strict=True)
        pairs = [_comparable(output, name, a[output], b[output]) for name, a, b in columns]
        right, got = (np.concatenate(side) for side in zip(*pairs, strict=True))
        differences.append(np.abs(right - got))
        cosines.append(_cosine(right, got))
    every = np.concatenate(differences)
    return Accuracy(
        inputs=len(names),
        largest_difference=float(every.max(initial=0.0)),
        mean_difference=float(every.mean()) if every.size else 0.0,
        cosine=min(cosines),
        top1_agreement=_top1_agreement(parent, variant),
        task_lost=None if fault is None else _task_lost(names, parent, variant, fault),
    )


def _comparable(output: str, name: str, right: Array, got: Array) -> tuple[Array, Array]:
    """Both as flat float64; texts as 1, and as 0 where they differ."""
    if got.shape != right.shape:
        raise ModelError(
            f"output {output!r} for input {name!r} has shape {list(got.shape)}, and "
            f"{list(right.shape)} in the parent",
            hint="Its shape depends on values, such as a count of boxes; cut that part off.",
        )
    if right.dtype.kind == "O":
        return np.ones(right.size), (right == got).ravel().astype(np.float64)
    a, b = (array.astype(np.float64).ravel() for array in (right, got))
    finite = np.isfinite(a)
    if not np.isfinite(b[finite]).all():
        raise ModelError(
            f"output {output!r} for input {name!r} is not finite, unlike the parent's",
            hint="Values overflow in this precision; choose another kind.",
        )
    return np.where(finite, a, 0.0), np.where(finite, b, 0.0)


def _cosine(a: Array, b: Array) -> float:
    lengths = float(np.linalg.norm(a) * np.linalg.norm(b))
    if lengths == 0.0:
        return 1.0 if np.array_equal(a, b) else 0.0
    return float(np.clip(a @ b / lengths, -1.0, 1.0))


def _top1_agreement(parent: Answers, variant: Answers) -> float | None:
    """Of models with one output that has a score for each class; ``None`` for others."""
    if len(parent[0]) != 1:
        return None
    (output,) = parent[0]
    scores = [(a[output], b[output]) for a, b in zip(parent, variant, strict=True)]
    if not all(a.ndim == 2 and a.shape[1] > 1 and a.dtype.kind == "f" for a, _ in scores):
        return None
    return float(np.mean([np.array_equal(a.argmax(1), b.argmax(1)) for a, b in scores]))


def _task_lost(names: Sequence[str], parent: Answers, variant: Answers, fault: Fault) -> float:
    lost = [
        fault(name, right) is None and fault(name, got) is not None
        for name, right, got in zip(names, parent, variant, strict=True)
    ]
    return float(np.mean(lost))
