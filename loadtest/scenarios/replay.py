"""``replay``: the arrival times of a recorded trace."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from loadtest.scenarios.base import OpenLoop, Parameters, Scenario
from loadtest.schedule import recorded
from serving.errors import UsageError

_HINT = (
    "A trace is CSV with a header line, or JSONL (name ending in .jsonl); its column or key "
    "'timestamp' holds ascending seconds, or set column."
)


class ReplayParameters(Parameters):
    """Attributes: ``trace`` is a CSV or JSONL file, ``column`` the one that holds seconds."""

    trace: Path
    column: str = "timestamp"


def _make(level: float, parameters: ReplayParameters, _duration_s: float) -> OpenLoop:
    times = read_trace(parameters.trace, parameters.column)
    length_s = (times[-1] - times[0]) / level
    # The last arrival belongs to the window, so the window ends just after it.
    return OpenLoop(lambda _rng: recorded(times, level), stationary=False, length_s=length_s + 1e-3)


def read_trace(path: Path, column: str) -> list[float]:
    """Arrival times in seconds, as they stand in the file.

    Raises:
        UsageError: the file or the column is missing, a value is no number, times go backwards.
    """
    times: list[float] = []
    for line, value in _values(path, column):
        try:
            seconds = float(value)
        except (TypeError, ValueError):
            seconds = math.nan
        if not math.isfinite(seconds):
            raise UsageError(f"{path} line {line}: {value!r} is no number of seconds", hint=_HINT)
        if times and seconds < times[-1]:
            raise UsageError(
                f"{path} line {line}: time goes back from {times[-1]:g} to {seconds:g} s",
                hint="Sort the trace by time.",
            )
        times.append(seconds)
    if not times:
        raise UsageError(f"{path} holds no arrivals", hint=_HINT)
    return times


def _values(path: Path, column: str) -> Iterator[tuple[int, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"trace {path} cannot be read: {error}", hint=_HINT) from None
    rows = _json_lines(path, text) if path.suffix == ".jsonl" else _csv_lines(text)
    for line, row in rows:
        if not isinstance(row, dict) or column not in row:
            raise UsageError(f"{path} line {line} has no {column!r}", hint=_HINT)
        yield line, row[column]


def _csv_lines(text: str) -> Iterator[tuple[int, Any]]:
    yield from enumerate(csv.DictReader(text.splitlines()), 2)


def _json_lines(path: Path, text: str) -> Iterator[tuple[int, Any]]:
    for line, content in enumerate(text.splitlines(), 1):
        if content.strip():
            try:
                yield line, json.loads(content)
            except json.JSONDecodeError as error:
                raise UsageError(f"{path} line {line} is no JSON: {error}", hint=_HINT) from None


SCENARIO = Scenario(
    name="replay",
    summary="the arrival times of a trace: -p trace=FILE",
    level_name="times as fast",
    levels=(1,),
    make=_make,
    parameters=ReplayParameters,
)
