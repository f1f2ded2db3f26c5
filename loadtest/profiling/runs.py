"""What the two traced processes and their parent tell each other, and how long they run."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

from loadtest.record import Record
from serving.errors import InfersweepError

FAULT = "fault.json"
RUNS_OF_RUNTIME = "onnxruntime-runs.json"
RUNS_OF_TORCH = "torch-runs.json"
WARM_UP_RUNS = 3

_Row = TypeVar("_Row")


class Kernel(Record):
    """One of PyTorch's operators; ``self_us`` is without what it calls."""

    name: str
    calls: int
    self_us: float


class Fault(Record):
    """An error of the tree, as a process tells its parent."""

    what: str
    hint: str
    exit_code: int


class Done(Record):
    """What a traced process did."""

    runs: int
    run_ms: float
    threads: int
    trace: Path
    kernels: tuple[Kernel, ...] = ()


def repeat(run: Callable[[_Row], Any], rows: Sequence[_Row], seconds: float, most: int) -> int:
    """Run ``rows`` in turn for so long, at most ``most`` times; returns how often.

    At least once more than the warm-up takes.
    """
    end = time.monotonic() + seconds
    for done in count(1):
        run(rows[(done - 1) % len(rows)])
        if done > WARM_UP_RUNS and (time.monotonic() >= end or done >= most):
            return done
    raise AssertionError


def told(work: Callable[[], Done], folder: Path, name: str) -> int:
    """Write what ``work`` did as ``name``, or why it could not; returns the exit status."""
    try:
        done = work()
    except InfersweepError as error:
        fault = Fault(what=error.what, hint=error.hint, exit_code=error.exit_code)
        (folder / FAULT).write_text(fault.model_dump_json(), encoding="utf-8")
        return error.exit_code
    (folder / name).write_text(done.model_dump_json(), encoding="utf-8")
    return 0
