"""How long `infersweep models add` takes, and how much memory it holds, as whole commands.

Run by ``make bench-models``. The small model lists its weights as inputs, so that it is rewritten;
the large one has them in a file beside it, which is copied.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from benchmarks.rows import at_most, write

SMALL_BYTES = 25_000_000
LARGE_BYTES = 1_500_000_000
SECONDS = 2.0
MEMORY = 1.2
RUNS = 5
SIDE = 4_096


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        small, large = folder / "small.onnx", folder / "large" / "large.onnx"
        write_small(small)
        write_large(large)
        times = [_add(small, folder / f"all{run}")[0] for run in range(RUNS)]
        peak_bytes = _add(large, folder / "all")[1]
    write(
        "adding",
        [
            at_most("add a model of 25 MB, the whole command", times, SECONDS, "s"),
            at_most(
                "add a model of 1.5 GB in external files: largest memory / size",
                [peak_bytes / LARGE_BYTES],
                MEMORY,
            ),
        ],
    )


def write_small(file: Path) -> None:
    """Layers of 1024 by 1024, every weight an input as well."""
    side = 1_024
    layers = SMALL_BYTES // (4 * side * side)
    rng = np.random.default_rng(1)
    weights = [
        numpy_helper.from_array(rng.standard_normal((side, side)).astype(np.float32), f"w{layer}")
        for layer in range(layers)
    ]
    model = _layers(side, weights)
    model.graph.input.extend(
        helper.make_tensor_value_info(weight.name, TensorProto.FLOAT, list(weight.dims))
        for weight in weights
    )
    onnx.save(model, file)


def write_large(file: Path) -> None:
    """Layers of 4096 by 4096, all in one file beside the model."""
    file.parent.mkdir()
    layers = LARGE_BYTES // (4 * SIDE * SIDE)
    weights = []
    rng = np.random.default_rng(2)
    with (file.parent / "weights.bin").open("wb") as beside:
        for layer in range(layers):
            weight = TensorProto(name=f"w{layer}", data_type=TensorProto.FLOAT, dims=[SIDE, SIDE])
            weight.data_location = TensorProto.EXTERNAL
            entries = {"location": "weights.bin", "offset": beside.tell(), "length": 4 * SIDE**2}
            for key, value in entries.items():
                weight.external_data.add(key=key, value=str(value))
            beside.write(rng.standard_normal((SIDE, SIDE), dtype=np.float32).tobytes())
            weights.append(weight)
    file.write_bytes(_layers(SIDE, weights).SerializeToString())


def _layers(side: int, weights: list[TensorProto]) -> onnx.ModelProto:
    nodes, last = [], "x"
    for weight in weights:
        nodes.append(helper.make_node("MatMul", [last, weight.name], [f"{weight.name}_product"]))
        nodes.append(helper.make_node("Tanh", [f"{weight.name}_product"], [f"{weight.name}_y"]))
        last = f"{weight.name}_y"
    graph = helper.make_graph(
        nodes,
        "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", side])],
        [helper.make_tensor_value_info(last, TensorProto.FLOAT, ["batch", side])],
        weights,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _add(file: Path, repository: Path) -> tuple[float, int]:
    """Seconds and the largest resident memory, in bytes, of one command."""
    code = "from loadtest.cli import main; main()"
    command = ["models", "add", str(file), "--repository", str(repository)]
    started = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-c", code, *command], stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} failed")
    return seconds, usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
