"""Runs a zoo model's PyTorch module with PyTorch's profiler on; a process of its own.

``python -m loadtest.profiling.traced_torch REPOSITORY MODEL FOLDER SECONDS`` leaves the trace in
the folder, and what it did with the operators in ``torch-runs.json``.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.profiler import ProfilerActivity, profile

from loadtest.profiling.runs import RUNS_OF_TORCH, WARM_UP_RUNS, Done, Kernel, repeat, told
from serving.models.repository import Model, find_model
from serving.models.samples import samples_for
from serving.models.zoo.build import load_torch_module

TRACE = "torch-trace.json"
MOST_RUNS = 30
"""PyTorch notes every call of every operator, views and allocations among them."""


def traced(model: Model, folder: Path, seconds: float) -> Done:
    """On the CPU, as the fastapi baseline runs it.

    Raises:
        ModelError: the model exists as ONNX only.
    """
    torch.set_num_threads(model.config.intra_op_threads)
    torch.set_num_interop_threads(model.config.inter_op_threads)
    module = load_torch_module(model.name)
    names = [spec.name for spec in model.config.inputs]
    # PyTorch wants memory it may write to.
    rows = [
        [torch.from_numpy(np.array(sample.inputs[name])) for name in names]
        for sample in samples_for(model)
    ]
    with torch.inference_mode():
        for index in range(WARM_UP_RUNS):
            module(*rows[index % len(rows)])
        with profile(activities=[ProfilerActivity.CPU], acc_events=True) as profiler:
            begun_ns = time.monotonic_ns()
            runs = repeat(lambda row: module(*row), rows, seconds, MOST_RUNS)
            seconds_each = (time.monotonic_ns() - begun_ns) / 1e9 / runs
    profiler.export_chrome_trace(str(folder / TRACE))
    return Done(
        runs=runs,
        run_ms=1e3 * seconds_each,
        threads=model.config.intra_op_threads,
        trace=folder / TRACE,
        kernels=tuple(
            Kernel(name=event.key, calls=event.count, self_us=event.self_cpu_time_total)
            for event in profiler.key_averages()
        ),
    )


if __name__ == "__main__":
    repository, name, out, seconds = sys.argv[1:]
    found, folder = find_model(name, Path(repository)), Path(out)
    sys.exit(told(lambda: traced(found, folder, float(seconds)), folder, RUNS_OF_TORCH))
