"""When two answers are equal."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tolerance:
    """Answers are equal when |a - b| <= absolute + relative * |b|, as in ``numpy.allclose``.

    Different engines order the same float32 sums differently; these bounds leave room for that
    and for nothing else.
    """

    absolute: float = 1e-4
    relative: float = 1e-3

    def __str__(self) -> str:
        return f"{self.absolute:g} + {self.relative:g} x |reference|"


HALF_PRECISION = Tolerance(1e-2, 1e-2)
"""For graphs that compute with 11 significant bits, whatever the datatype of their outputs."""


def tolerance_for(kind: str) -> Tolerance:
    """How closely the answers of a variant of this kind can be repeated; empty for no variant."""
    return HALF_PRECISION if "fp16" in kind else Tolerance()
