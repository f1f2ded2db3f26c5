"""Numbers of any size in four digits."""

from __future__ import annotations


def four_digits(value: float | None) -> str:
    """Whole above 1,000 and never with powers of ten; ``-`` where there is none."""
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
