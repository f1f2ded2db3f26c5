"""How much faster CenterFace is with its weights out of the graph's inputs.

Run by ``make bench-models``. Shipped and normalised take turns on one thread; the ratio is the
median over pairs, so that a drifting machine meets both alike.
"""

from __future__ import annotations

import time

import numpy as np
import onnx
import onnxruntime

from benchmarks.rows import at_least, write
from serving.models.normalise import set_axes
from serving.models.repository import find_model
from serving.models.weights import fetch
from serving.models.zoo import ENTRIES
from serving.models.zoo.build import ensure_built

PAIRS = 40
TARGET = 1.5
HEIGHT, WIDTH = 480, 640


def main() -> None:
    model = find_model("face_detector")
    ensure_built(model, print)
    shipped = onnx.load(fetch(ENTRIES["face_detector"].weights, print))
    # Only its shape is freed, as it must be to accept this size; the weights stay inputs.
    set_axes(shipped, {"input.1": ("batch", 3, "height", "width")})
    before = _session(shipped.SerializeToString())
    after = _session(model.file.read_bytes())
    image = np.random.default_rng(1).uniform(0, 255, (1, 3, HEIGHT, WIDTH)).astype(np.float32)
    pairs = [
        (_seconds(before, "input.1", image), _seconds(after, "image", image))
        for _ in range(PAIRS + 2)
    ][2:]
    ratios = [slow / fast for slow, fast in pairs]
    name = f"CenterFace {HEIGHT}x{WIDTH}: shipped time / normalised time, one thread"
    write("models", [at_least(name, ratios, TARGET)])


def _session(model: bytes) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _seconds(session: onnxruntime.InferenceSession, name: str, image: np.ndarray) -> float:
    started = time.perf_counter()
    session.run(None, {name: image})
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
