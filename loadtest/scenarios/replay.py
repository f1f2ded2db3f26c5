"""``replay``: the arrival times of a recorded trace, be it of many users or of a vehicle's cameras.

With a column that says which camera a frame is from, each sends its frames in order on a connection
of its own.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import Field

from loadtest.camera_schedule import FramePolicy, Frames
from loadtest.scenarios.base import OpenLoop, Parameters, Scenario, Streams, deadline_in_ns
from loadtest.schedule import recorded
from serving.errors import UsageError

_HINT = (
    "A trace is CSV with a header line, or JSONL (name ending in .jsonl); its column or key "
    "'timestamp' holds ascending seconds, or set column; stream names that of the cameras."
)


class ReplayParameters(Parameters):
    """Attributes:
    trace: a CSV or JSONL file.
    column: the one that holds seconds.
    stream: the one that says which camera a frame is from.
    policy: what becomes of a frame that must wait; see ``FramePolicy``.
    deadline_ms: how old a frame may be when it is answered; ``drop-late`` drops by it.
    """

    trace: Path
    column: str = "timestamp"
    stream: str | None = None
    policy: FramePolicy = "fifo"
    deadline_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)


def _make(level: float, parameters: ReplayParameters, _duration_s: float) -> OpenLoop:
    times, cameras = read_trace(parameters.trace, parameters.column, parameters.stream)
    # The last arrival belongs to the window, so the window ends just after it.
    length_s = (times[-1] - times[0]) / level + 1e-3
    if parameters.stream is not None:
        numbers = {name: number for number, name in enumerate(dict.fromkeys(cameras))}
        streams = Streams(
            tuple(numbers),
            lambda _rng: _frames(times, [numbers[name] for name in cameras], level),
            parameters.policy,
            deadline_in_ns(parameters.deadline_ms),
        )
        return OpenLoop.of(streams, stationary=False, length_s=length_s)
    if parameters.policy != "fifo" or parameters.deadline_ms is not None:
        raise UsageError(
            "a frame policy or a deadline needs a trace of cameras",
            hint="Give -p stream=COLUMN, the column that says which camera a frame is from.",
        )
    return OpenLoop(lambda _rng: recorded(times, level), stationary=False, length_s=length_s)


def _frames(times: list[float], streams: list[int], speed: float) -> Iterator[Frames]:
    first = 0
    for due_ns in recorded(times, speed):
        yield due_ns, np.array(streams[first : first + len(due_ns)], np.int32)
        first += len(due_ns)


def read_trace(path: Path, column: str, stream: str | None = None) -> tuple[list[float], list[str]]:
    """Arrival times in seconds and the camera of each, as they stand in the file.

    Without a column ``stream`` there are no cameras.

    Raises:
        UsageError: the file or a column is missing, a value is no number, times go backwards, a
            camera has no name.
    """
    times: list[float] = []
    cameras: list[str] = []
    for line, row in _rows(path):
        value = _value(path, line, row, column)
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
        if stream is not None:
            cameras.append(_name(path, line, _value(path, line, row, stream)))
    if not times:
        raise UsageError(f"{path} holds no arrivals", hint=_HINT)
    return times, cameras


def _value(path: Path, line: int, row: Any, column: str) -> Any:
    if not isinstance(row, dict) or column not in row:
        raise UsageError(f"{path} line {line} has no {column!r}", hint=_HINT)
    return row[column]


def _name(path: Path, line: int, value: Any) -> str:
    name = value.strip() if isinstance(value, str) else str(value)
    if value is None or not name:
        raise UsageError(f"{path} line {line} does not say which camera it is from", hint=_HINT)
    return name


def _rows(path: Path) -> Iterator[tuple[int, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"trace {path} cannot be read: {error}", hint=_HINT) from None
    yield from _json_lines(path, text) if path.suffix == ".jsonl" else _csv_lines(text)


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
