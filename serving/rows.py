"""Are the rows of a batch independent? Each is answered alone, then all together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from serving.errors import InfersweepError
from serving.protocol import NUMPY_TYPES, Array, ProtocolError
from serving.tolerance import HALF_PRECISION, Tolerance

Arrays = Mapping[str, Array]
Run = Callable[[Arrays], Arrays]
Seen = tuple[tuple[str, Mapping[str, tuple[int, ...]]], ...]
"""Shapes of all outputs, each time with what they were the answer to, such as ``3 rows``."""

_HALVES: Mapping[np.dtype[np.generic], Tolerance] = {
    np.dtype(NUMPY_TYPES["FP16"]): HALF_PRECISION,
    np.dtype(NUMPY_TYPES["BF16"]): Tolerance(1e-1, 5e-2),
}
"""Sums of 11 or 8 significant bits in another order."""


@dataclass(frozen=True)
class Trial:
    """What a model did with a few rows.

    Attributes:
        why_dependent: empty when rows answer the same alone and together.
        largest_difference: between the two, absolute.
        takes_more: whether it ran on all rows at once.
        telling: whether different rows had different and finite answers, so that a mixture would
            have been noticed.
    """

    why_dependent: str
    largest_difference: float
    seen: Seen
    takes_more: bool
    telling: bool


def try_rows(run: Run, rows: Sequence[Arrays]) -> Trial:
    """Compare the answers to ``rows``, each a batch of one, with that to all of them at once.

    Raises:
        ProtocolError: the model refuses the first row alone.
    """
    alone = [run(row) for row in rows]
    seen: Seen = (("1 row", shapes_of(alone[0])),)
    joined = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
    try:
        together = run(joined)
    except (ProtocolError, InfersweepError) as error:
        why = f"it takes one row but not {len(rows)}: {error}"
        return Trial(why, 0.0, seen, takes_more=False, telling=False)
    seen = (*seen, (f"{len(rows)} rows", shapes_of(together)))
    why, largest = _dependence(alone, together)
    if not _same(alone[0], run(rows[0])):
        why = "the same input is answered differently each time"
    return Trial(why, largest, seen, takes_more=True, telling=_telling(alone))


def equal_within(one: Array, other: Array) -> tuple[bool, float]:
    """Whether two answers are equal, and their largest absolute difference.

    Numbers of 16 bits are given more room; all that is no float must be the same.
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return False, float("inf")
    if one.dtype.kind != "f" and one.dtype not in _HALVES:
        return bool(np.array_equal(one, other)), 0.0
    bounds = _HALVES.get(one.dtype, Tolerance())
    wide, reference = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        largest = float(np.nanmax(np.abs(wide - reference), initial=0.0))
    equal = np.allclose(wide, reference, rtol=bounds.relative, atol=bounds.absolute, equal_nan=True)
    return bool(equal), largest


def shapes_of(answer: Arrays) -> dict[str, tuple[int, ...]]:
    """Output name to shape."""
    return {name: array.shape for name, array in answer.items()}


def _dependence(alone: Sequence[Arrays], together: Arrays) -> tuple[str, float]:
    largest = 0.0
    for name, array in together.items():
        if array.shape[:1] != (len(alone),):
            return f"output {name!r} has shape {list(array.shape)} for {len(alone)} rows", largest
        for index, answer in enumerate(alone):
            row = array[index : index + 1]
            if row.shape != answer[name].shape:
                shapes = f"{list(answer[name].shape)} alone and {list(row.shape)} in a batch"
                return f"output {name!r} of a row has shape {shapes}", largest
            equal, difference = equal_within(row, answer[name])
            largest = max(largest, difference)
            if not equal:
                amount = f" by {difference:.2g}" if difference else ""
                return f"output {name!r} of a row changes{amount} with the rows beside it", largest
    return "", largest


def _same(one: Arrays, other: Arrays) -> bool:
    return all(equal_within(array, other[name])[0] for name, array in one.items())


def _telling(answers: Sequence[Arrays]) -> bool:
    first = answers[0]
    return any(
        not equal_within(array, answer[name])[0]
        and (array.dtype.kind != "f" or bool(np.isfinite(array).any()))
        for answer in answers[1:]
        for name, array in first.items()
    )
