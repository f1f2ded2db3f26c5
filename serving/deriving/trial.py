"""A draft and its parent, asked the same: how far apart they are, and how fast."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass

import numpy as np

from serving.errors import ModelError
from serving.models.repository import Model
from serving.models.samples import Sample, samples_for, source_of_samples, stack_rows
from serving.models.variants.accuracy import Accuracy, compare
from serving.models.zoo import ENTRIES
from serving.protocol import Array, ProtocolError
from serving.session import Session, open_session
from serving.tolerance import Tolerance

_WARM, _TURNS = 2, 9
_UNSUITED = "This kind does not suit this network."


@dataclass(frozen=True)
class Trial:
    """What was seen.

    Attributes:
        time_ratio: the draft's time for one input over the parent's, the median of a few turns.
        rows_independent: rows answer together as they do alone, where they may be together.
        provider: what the draft ran on.
    """

    accuracy: Accuracy
    time_ratio: float
    rows_independent: bool
    provider: str


def try_draft(draft: Model, parent: Model, tolerance: Tolerance) -> Trial:
    """Run both on the parent's samples, in this process.

    Rows are independent when they agree within ``tolerance``.

    Raises:
        MachineError: a provider does not start.
        ModelError: the draft does not load or run, or its answers cannot be compared.
    """
    samples = samples_for(parent)
    entry = ENTRIES.get(parent.name) if source_of_samples(parent) == "zoo" else None
    with closing(open_session(parent)) as right, closing(_open(draft)) as session:
        try:
            answers = [session.run(sample.inputs) for sample in samples]
        except ProtocolError as error:
            raise ModelError(
                f"{draft.name} does not run on its parent's inputs: {error}", hint=_UNSUITED
            ) from None
        return Trial(
            accuracy=compare(
                [sample.name for sample in samples],
                [right.run(sample.inputs) for sample in samples],
                answers,
                entry.fault if entry else None,
            ),
            time_ratio=_time_ratio(session, right, samples[0]),
            rows_independent=_rows_independent(session, draft, samples, answers, tolerance),
            provider=session.provider,
        )


def _open(draft: Model) -> Session:
    try:
        return open_session(draft)
    except ModelError as error:
        raise ModelError(f"{draft.name} does not load: {error.what}", hint=_UNSUITED) from None


def _time_ratio(variant: Session, parent: Session, sample: Sample) -> float:
    """They take turns, so that a drifting machine meets both alike."""
    ratios = [_seconds(variant, sample) / _seconds(parent, sample) for _ in range(_WARM + _TURNS)]
    return statistics.median(ratios[_WARM:])


def _seconds(session: Session, sample: Sample) -> float:
    started = time.perf_counter()
    session.run(sample.inputs)
    return time.perf_counter() - started


def _rows_independent(
    session: Session,
    draft: Model,
    samples: Sequence[Sample],
    answers: Sequence[Mapping[str, Array]],
    tolerance: Tolerance,
) -> bool:
    limit = draft.config.max_batch_size
    shapes = [[array.shape for array in sample.inputs.values()] for sample in samples]
    alike = [index for index, shape in enumerate(shapes) if shape == shapes[0]][:limit]
    if len(alike) < 2:
        return True
    together = session.run(stack_rows([samples[index] for index in alike]))
    return all(
        _equal(together[name][row : row + 1], alone, tolerance)
        for row, index in enumerate(alike)
        for name, alone in answers[index].items()
    )


def _equal(got: Array, wanted: Array, tolerance: Tolerance) -> bool:
    if wanted.dtype.kind == "O" or got.shape != wanted.shape:
        return np.array_equal(got, wanted)
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    return np.allclose(a, b, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True)
