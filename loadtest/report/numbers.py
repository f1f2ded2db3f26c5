"""How numbers are written, the same in the page, the figures and the terminal."""

from __future__ import annotations

from collections.abc import Iterable

from loadtest.analysis import QUANTILES
from loadtest.results import OUTCOMES, Contrast, Percentiles, Point, Quantile
from serving.models.variants.record import VariantRecord

PERCENTILES = tuple(QUANTILES.items())
"""Field of ``Percentiles`` and its quantile, from low to high."""

MISSING = "-"


def percentile(values: Percentiles, field: str) -> float | None:
    """Its value in milliseconds, without the bounds."""
    found = quantile(values, field)
    return None if found is None else found.value_ms


def quantile(values: Percentiles, field: str) -> Quantile | None:
    found: Quantile | None = getattr(values, field)
    return found


def bounded(value: Quantile) -> str:
    """``at least 1,000`` where a time limit was reached, the bare number elsewhere."""
    return f"≥ {milliseconds(value.value_ms)}" if value.at_least else milliseconds(value.value_ms)


def bounds(value: Quantile) -> str:
    """What the value lies between; open where there is no upper bound."""
    high = "no bound" if value.high_ms is None else milliseconds(value.high_ms)
    return f"{milliseconds(value.low_ms)} to {high}"


def rate(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.1f}"


def rate_range(bounds: tuple[float, float] | None) -> str:
    return MISSING if bounds is None else f"{bounds[0]:,.1f} to {bounds[1]:,.1f}"


def milliseconds(value: float | None) -> str:
    """Three digits that mean something, never fewer than the whole milliseconds."""
    if value is None:
        return MISSING
    return f"{value:,.{3 if value < 1 else 2 if value < 10 else 1 if value < 100 else 0}f}"


def share(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0%}"


def failed(value: float | None) -> str:
    """A share of requests that got no right answer; never 0 unless none failed."""
    if value is None:
        return MISSING
    return "0" if value == 0 else f"{value:.1%}" if value >= 0.001 else f"{value * 100:.1g}%"


def ratio(found: Contrast | None) -> str:
    """``0.83 (0.80 to 0.86)``; the first has nothing that it is held against."""
    if found is None:
        return MISSING
    if found.low is None or found.high is None:
        return f"{found.ratio:.2f}"
    return f"{found.ratio:.2f} ({found.low:.2f} to {found.high:.2f})"


def drop(variant: VariantRecord) -> str:
    """What a variant loses, by the measure that it names."""
    return f"{100 * variant.drop:.3g}%"


def size(value: float | None) -> str:
    """Bytes in decimal units."""
    if value is None:
        return MISSING
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= scale:
            return f"{value / scale:,.{0 if value >= 100 * scale else 1}f} {unit}"
    return f"{value:.0f} B"


def outcomes(point: Point) -> str:
    """Right answers, then every other outcome that happened."""
    known = [name for name in OUTCOMES if point.outcomes.get(name)]
    told = known if "ok" in known else ["ok", *known]
    return ", ".join(f"{point.outcomes.get(name, 0):,} {name.replace('_', ' ')}" for name in told)


def seconds(value: float | None) -> str:
    return MISSING if value is None else f"{value:,.1f} s"


def cpus(numbers: Iterable[int]) -> str:
    """``0-2, 5`` for 0, 1, 2, 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs) or MISSING
