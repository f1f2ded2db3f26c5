"""What every benchmark writes: rows of a ratio or an error beside the bound it must keep."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from loadtest.manifest import describe_machine

STATED = "none"
"""The target of a row that keeps no bound."""

OUT = Path(__file__).with_name("out")


@dataclass(frozen=True)
class Row:
    """Attributes: ``met`` is ``None`` where it cannot be measured here; ``note`` says why."""

    name: str
    value: float | None
    unit: str
    target: str
    met: bool | None
    note: str = ""


def at_least(name: str, values: Sequence[float], bound: float, unit: str = "ratio") -> Row:
    """The median of ``values`` must reach ``bound``; the note gives their range."""
    return _bounded(name, values, f">= {bound:g}", bool(statistics.median(values) >= bound), unit)


def at_most(name: str, values: Sequence[float], bound: float, unit: str = "ratio") -> Row:
    """The median of ``values`` must not exceed ``bound``."""
    return _bounded(name, values, f"<= {bound:g}", bool(statistics.median(values) <= bound), unit)


def stated(name: str, values: Sequence[float], unit: str = "ratio") -> Row:
    """A figure without a bound to keep."""
    return replace(at_least(name, values, 0.0, unit), target=STATED)


def _bounded(name: str, values: Sequence[float], target: str, met: bool, unit: str) -> Row:
    middle = float(statistics.median(values))
    note = f"{len(values)} runs, {min(values):.3g} to {max(values):.3g}" if len(values) > 1 else ""
    return Row(name, round(middle, 4), unit, target, met, note)


def unmeasured(name: str, target: str, why: str) -> Row:
    return Row(name, None, "", target, None, why)


def write(benchmark: str, rows: Sequence[Row], versions: Mapping[str, str] | None = None) -> None:
    """Print a table and write ``benchmarks/out/<benchmark>.json``."""
    table = Table("what", "value", "target", "met", "note", title=benchmark)
    for row in rows:
        value = "-" if row.value is None else f"{row.value:g} {row.unit}"
        met = {True: "yes", False: "NO", None: "not here"}[row.met]
        table.add_row(row.name, value, row.target, met, row.note)
    Console(width=150).print(table)
    OUT.mkdir(exist_ok=True)
    result = {
        "machine": describe_machine().model_dump(),
        "versions": dict(versions or {}),
        "rows": [asdict(row) for row in rows],
    }
    (OUT / f"{benchmark}.json").write_text(json.dumps(result, indent=2) + "\n")
