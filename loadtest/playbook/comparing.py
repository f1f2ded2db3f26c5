"""The answers of an arm against those of the model's reference session."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from loadtest.playbook.record import Answers
from loadtest.results import Parity
from serving.errors import ModelError
from serving.models.repository import Model
from serving.models.variants.accuracy import compare
from serving.models.variants.parameters import tolerance_of
from serving.models.variants.record import VariantRecord
from serving.models.zoo import ENTRIES
from serving.parity import Reference
from serving.protocol import Array


def answers_of(model: Model, reference: Reference, got: Sequence[Mapping[str, Array]]) -> Answers:
    """``got``: one mapping of outputs for each sample of the reference, in its order."""
    entry = ENTRIES.get(model.name)
    names = [sample.name for sample in reference.samples]
    try:
        found = compare(names, reference.answers, got, entry.fault if entry else None)
    except (ModelError, KeyError) as error:
        told = " ".join(str(error).split())
        return Answers(
            right=False,
            inputs=len(names),
            largest_difference=None,
            lost=1.0,
            lost_measure="all",
            detail=told,
        )
    tolerance = tolerance_of(model.computed.config)
    wrong = [
        name
        for name, right, other in zip(names, reference.answers, got, strict=True)
        if not all(
            _equal(right[output], other[output], tolerance.relative, tolerance.absolute)
            for output in right
        )
    ]
    shares = {"top-1": found.top1_agreement, "task": found.task_lost}
    lost = {
        name: 1 - share if name == "top-1" else share
        for name, share in shares.items()
        if share is not None
    } or {"1 - cosine": 1 - found.cosine}
    measure = max(lost, key=lambda name: lost[name])
    detail = (
        f"{len(wrong)} of {len(names)} answers differ by up to {found.largest_difference:.3g}, "
        f"more than {tolerance}"
    )
    return Answers(
        right=not wrong,
        inputs=len(names),
        largest_difference=found.largest_difference,
        lost=lost[measure],
        lost_measure=measure,
        detail=detail if wrong else "",
    )


def _equal(right: Array, got: Array, relative: float, absolute: float) -> bool:
    if right.dtype.kind != "f":
        return bool(np.array_equal(right, got))
    return bool(np.allclose(got, right, rtol=relative, atol=absolute, equal_nan=True))


def answers_from_parity(parity: Parity, variant: VariantRecord | None) -> Answers:
    """Of a server: parity with its own model's session, and what that model loses, if a variant."""
    return Answers(
        right=parity.passed and variant is None,
        inputs=variant.inputs if variant else parity.rows,
        largest_difference=variant.largest_difference if variant else parity.largest_difference,
        lost=(variant.drop if variant else 0.0) if parity.passed else 1.0,
        lost_measure=variant.measure if variant else "parity",
        detail=parity.detail,
    )
