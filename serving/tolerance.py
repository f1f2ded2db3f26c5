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
