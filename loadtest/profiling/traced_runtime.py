"""Runs a model in ONNX Runtime with its profiler on; a process of its own, pinned by its parent.

``python -m loadtest.profiling.traced_runtime REPOSITORY MODEL FOLDER SECONDS`` leaves the trace in
the folder, and what it did in ``onnxruntime-runs.json``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from loadtest.profiling.runs import RUNS_OF_RUNTIME, Done, repeat, told
from serving.models.repository import Model, find_model
from serving.models.samples import samples_for
from serving.session import open_session

TRACE = "onnxruntime-trace.json"
MOST_RUNS = 100
"""A trace grows by several hundred bytes with every call of a kernel."""


def traced(model: Model, folder: Path, seconds: float) -> Done:
    """Raises InfersweepError when the model cannot be loaded or run."""
    session = open_session(model, trace=folder / "onnxruntime")
    samples = [sample.inputs for sample in samples_for(model)]
    begun_ns = time.monotonic_ns()
    runs = repeat(session.run, samples, seconds, MOST_RUNS)
    seconds_each = (time.monotonic_ns() - begun_ns) / 1e9 / runs
    threads = model.config.execution.intra_op_threads
    # ONNX Runtime adds the time of day to the name.
    trace = session.end_trace().replace(folder / TRACE)
    return Done(runs=runs, run_ms=1e3 * seconds_each, threads=threads, trace=trace)


if __name__ == "__main__":
    repository, name, out, seconds = sys.argv[1:]
    found, folder = find_model(name, Path(repository)), Path(out)
    sys.exit(told(lambda: traced(found, folder, float(seconds)), folder, RUNS_OF_RUNTIME))
