"""The two traced processes, started on the server's CPUs, and what their traces come to."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from loadtest.profiling.operators import NoRunsError, calls_of, operators_of, runs_of
from loadtest.profiling.record import RuntimeProfile, TorchProfile
from loadtest.profiling.runs import (
    FAULT,
    RUNS_OF_RUNTIME,
    RUNS_OF_TORCH,
    WARM_UP_RUNS,
    Done,
    Fault,
)
from serving.errors import InfersweepError, MachineError, ModelError
from serving.models.repository import Model
from serving.models.zoo import ENTRIES
from serving.process import RunningProcess

_ALLOWED_S = 180.0
"""For imports, loading and writing a trace, besides the runs."""


@dataclass(frozen=True)
class Place:
    """Where a process is traced: ``folder`` takes what it leaves."""

    cpus: tuple[int, ...]
    folder: Path
    logs: Path


def profile_runtime(model: Model, seconds: float, place: Place) -> RuntimeProfile:
    """ONNX Runtime's own profiler on ``model``, as its configuration states it.

    Raises:
        InfersweepError: it has no graph, cannot be run, or the process died.
    """
    if model.config.front is not None:
        raise ModelError(
            f"model {model.name!r} is a front half without a graph",
            hint="Profile the model behind it, or the pipeline.",
        )
    done = _done("traced_runtime", model, seconds, place, RUNS_OF_RUNTIME)
    try:
        runs = runs_of(json.loads(done.trace.read_text("utf-8")), WARM_UP_RUNS)
    except (OSError, ValueError, KeyError, NoRunsError) as error:
        raise MachineError(
            f"the trace {done.trace.name} cannot be read: {error or 'it holds no run'}",
            hint="Is the disk full?",
        ) from None
    return RuntimeProfile(
        runs=runs.count,
        warm_up_runs=WARM_UP_RUNS,
        intra_op_threads=done.threads,
        session_ms=runs.session_ms,
        kernels_ms=runs.kernels_ms,
        by_type=runs.by_type,
        by_node=runs.by_node,
        trace=done.trace.name,
    )


def why_no_module(model: Model) -> str:
    """Why PyTorch cannot run ``model``; empty where it can."""
    entry = ENTRIES.get(model.name)
    if entry is None:
        return f"model {model.name!r} is not in the zoo, so there is no PyTorch module of it"
    return "" if entry.torch_module else f"model {model.name!r} exists as ONNX only"


def profile_torch(model: Model, seconds: float, place: Place) -> TorchProfile:
    """PyTorch's profiler on the zoo's module.

    Raises:
        InfersweepError: it cannot be run, or the process died.
    """
    done = _done("traced_torch", model, seconds, place, RUNS_OF_TORCH)
    calls = calls_of(done.kernels)
    return TorchProfile(
        runs=done.runs,
        warm_up_runs=WARM_UP_RUNS,
        intra_op_threads=done.threads,
        run_ms=done.run_ms,
        kernels_ms=sum(call.us for call in calls) / done.runs / 1e3,
        by_type=operators_of(calls, by=lambda call: (call.op_type, None, call.provider)),
        trace=done.trace.name,
    )


def _done(module: str, model: Model, seconds: float, place: Place, name: str) -> Done:
    fault, written = place.folder / FAULT, place.folder / name
    fault.unlink(missing_ok=True)
    argv = _command(module, model, seconds, place.folder)
    with RunningProcess(argv, cpus=place.cpus, log=place.logs / f"{module}.log") as process:
        try:
            process.wait(seconds + _ALLOWED_S)
        except subprocess.TimeoutExpired:
            raise MachineError(
                f"{module} took more than {_ALLOWED_S:g} s longer than asked",
                hint="Give a shorter --duration.",
            ) from None
    if fault.is_file():
        told = Fault.model_validate_json(fault.read_text("utf-8"))
        fault.unlink()
        raise _kind(told.exit_code)(told.what, hint=told.hint)
    try:
        done = Done.model_validate_json(written.read_text("utf-8"))
    except (OSError, ValidationError):
        raise MachineError(
            f"{module} {process.ended()} without a result",
            hint=f"Its log {process.log} ends with:\n{process.log_tail()}",
        ) from None
    written.unlink()
    return done


def _command(module: str, model: Model, seconds: float, folder: Path) -> Sequence[str]:
    root = str(model.root.absolute())
    called = f"loadtest.profiling.{module}"
    return [sys.executable, "-m", called, root, model.name, str(folder), f"{seconds:g}"]


def _kind(exit_code: int) -> type[InfersweepError]:
    kinds = InfersweepError.__subclasses__()
    return next((kind for kind in kinds if kind.exit_code == exit_code), InfersweepError)
