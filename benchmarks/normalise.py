"""How much faster two models of the zoo are than the graphs that their authors ship.

Both take turns on one thread; the ratio is the median over pairs, so that a drifting machine meets
both alike.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import onnx
import onnxruntime

from benchmarks.rows import Row, at_least
from serving.models.normalise import set_axes
from serving.models.repository import find_model
from serving.models.weights import fetch
from serving.models.zoo import ENTRIES, voice_activity
from serving.models.zoo.bare_session import open_bare
from serving.models.zoo.build import ensure_built

HEIGHT, WIDTH = 480, 640
Call = Callable[[], object]


def rows() -> list[Row]:
    """Shipped time over normalised time."""
    return [_centerface(), _silero()]


def in_turns(first: Call, second: Call, pairs: int) -> list[tuple[float, float]]:
    """Seconds of both, pair by pair, after two pairs of warm-up."""
    return [(_seconds(first), _seconds(second)) for _ in range(pairs + 2)][2:]


def open_built(name: str) -> onnxruntime.InferenceSession:
    """The zoo's model on one thread, built when it is not there."""
    model = find_model(name)
    ensure_built(model, print)
    return open_bare(model.file)


def _centerface() -> Row:
    shipped = onnx.load(fetch(ENTRIES["face_detector"].weights, print))
    # Only its shape is freed, as it must be to accept this size; the weights stay inputs.
    set_axes(shipped, {"input.1": ("batch", 3, "height", "width")})
    before, after = open_bare(shipped.SerializeToString()), open_built("face_detector")
    image = np.random.default_rng(1).uniform(0, 255, (1, 3, HEIGHT, WIDTH)).astype(np.float32)
    pairs = in_turns(
        lambda: before.run(None, {"input.1": image}), lambda: after.run(None, {"image": image}), 40
    )
    return _row(f"CenterFace {HEIGHT}x{WIDTH}", pairs, 1.5)


def _silero() -> Row:
    before = open_bare(fetch(voice_activity.WEIGHTS, print))
    after = open_built("voice_activity")
    heard = voice_activity.shipped_answers()[20]
    given = {
        "input": heard.audio,
        "state": heard.state.transpose(1, 0, 2),
        "sr": np.array(voice_activity.SAMPLE_RATE_HZ, np.int64),
    }
    ours = {"audio": heard.audio, "state": heard.state}
    pairs = in_turns(lambda: before.run(None, given), lambda: after.run(None, ours), 2_000)
    return _row("Silero VAD", pairs, 1.1)


def _row(model: str, pairs: list[tuple[float, float]], target: float) -> Row:
    ratios = [before / after for before, after in pairs]
    return at_least(f"{model}: shipped time / normalised time, one thread", ratios, target)


def _seconds(call: Call) -> float:
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
