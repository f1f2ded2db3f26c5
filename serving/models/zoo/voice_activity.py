"""Silero VAD: is someone speaking in these 32 ms? A stream's state travels with each request.

Silero Team, https://github.com/snakers4/silero-vad.
"""

from __future__ import annotations

import wave
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import onnx
from onnx import numpy_helper

from serving.models.weights import PackagedFile, fetch
from serving.models.zoo.assemble import write_graph
from serving.models.zoo.bare_session import open_bare
from serving.models.zoo.entry import ZooEntry
from serving.protocol import Array

SAMPLE_RATE_HZ = 16_000
CONTEXT, NEW = 64, 512
"""Samples of a window: the last ones of the window before, then new ones (32 ms)."""
WINDOW = CONTEXT + NEW
THRESHOLD = 0.5

WEIGHTS = PackagedFile(
    package="silero-vad",
    version="6.2.3",
    member="silero_vad/data/silero_vad_16k_op15.onnx",
    sha256="7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
    licence="MIT",
)
RECORDING = PackagedFile(
    package="silero-vad",
    version="6.2.3",
    member="silero_vad-6.2.3/tests/data/test.wav",
    sha256="89f17d9c94c4b31eb320f424628bcbc920abaddbee6e2760fd868bfb1d9a2e47",
    licence="MIT",
    sdist=True,
)
"""Mono, 16 kHz: a voice with pauses."""

SPEAKING: Mapping[float, bool] = {
    0.5: True,
    1.0: True,
    1.5: True,
    2.3: False,
    3.0: True,
    4.0: True,
    6.0: True,
    7.0: False,
    8.5: False,
    9.0: False,
    9.6: True,
    12.0: True,
}
"""Does the recording's voice speak at this second?"""
_LISTEN_S = 12.5

# The shipped graph asks for a sample rate without an axis, of which only one value is allowed, and
# decides by `If` what cannot be otherwise. Its state has the batch axis in the middle.
_GRAPH = f"""
<ir_version: 8, opset_import: ["" : 15]>
voice_activity (float[batch, {WINDOW}] audio, float[batch, 2, 128] state)
    => (float[batch, 1] probability, float[batch, 2, 128] next_state)
<int64[4] reflected = {{0, 0, 0, 64}}, int64[1] channel = {{1}}, int64[1] time = {{0}}>
{{
    padded = Pad <mode = "reflect"> (audio, reflected)
    signal = Unsqueeze (padded, channel)
    spectrum = Conv <strides = [128]> (signal, stft)
    real, imaginary = Split <axis = 1> (spectrum)
    real2 = Mul (real, real)
    imaginary2 = Mul (imaginary, imaginary)
    power = Add (real2, imaginary2)
    magnitude = Sqrt (power)

    c0 = Conv <pads = [1, 1]> (magnitude, weight0, bias0)
    r0 = Relu (c0)
    c1 = Conv <pads = [1, 1], strides = [2]> (r0, weight1, bias1)
    r1 = Relu (c1)
    c2 = Conv <pads = [1, 1], strides = [2]> (r1, weight2, bias2)
    r2 = Relu (c2)
    c3 = Conv <pads = [1, 1]> (r2, weight3, bias3)
    encoded = Relu (c3)

    step = Transpose <perm = [2, 0, 1]> (encoded)
    before = Transpose <perm = [1, 0, 2]> (state)
    hidden, cell = Split <axis = 0> (before)
    all, next_hidden, next_cell = LSTM <hidden_size = 128>
        (step, gates_input, gates_hidden, gates_biases, , hidden, cell)
    after = Concat <axis = 0> (next_hidden, next_cell)
    next_state = Transpose <perm = [1, 0, 2]> (after)

    row = Squeeze (next_hidden, time)
    active = Relu (row)
    logit = Gemm <transB = 1> (active, weight4, bias4)
    probability = Sigmoid (logit)
}}
"""


def _build(weights: Path, target: Path) -> None:
    shipped = {
        weight.name.removeprefix("model."): numpy_helper.to_array(weight)
        for weight in onnx.load(weights).graph.initializer
    }
    convolutions = {
        f"{what}{layer}": shipped[f"encoder.{layer}.reparam_conv.{what}"]
        for layer in range(4)
        for what in ("weight", "bias")
    }
    gates = {
        what: _output_gate_second(shipped[f"decoder.rnn.{what}"])
        for what in ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
    }
    graph_weights = {
        "stft": shipped["stft.forward_basis_buffer"],
        **convolutions,
        "gates_input": gates["weight_ih"][None],
        "gates_hidden": gates["weight_hh"][None],
        "gates_biases": np.concatenate([gates["bias_ih"], gates["bias_hh"]])[None],
        "weight4": shipped["decoder.decoder.2.weight"][:, :, 0],
        "bias4": shipped["decoder.decoder.2.bias"],
    }
    write_graph(_GRAPH, graph_weights, target)


def _output_gate_second(rows: Array) -> Array:
    """From input, forget, cell, output (as PyTorch has them) to input, output, forget, cell."""
    entry, forget, cell, output = np.split(rows, 4)
    return np.concatenate([entry, output, forget, cell])


def _recording() -> Array:
    """The beginning of the recording in -1..1, float32."""
    with wave.open(str(fetch(RECORDING, lambda _: None))) as stream:
        frames = stream.readframes(int(_LISTEN_S * SAMPLE_RATE_HZ))
    return np.frombuffer(frames, "<i2").astype(np.float32) / 32_768


def _windows(audio: Array) -> Array:
    """All windows of a recording, [count, 576]; the first one's context is silence."""
    count = len(audio) // NEW
    new = audio[: count * NEW].reshape(count, NEW)
    context = np.concatenate([np.zeros((1, CONTEXT), np.float32), new[:-1, -CONTEXT:]])
    return np.concatenate([context, new], axis=1)


@dataclass(frozen=True)
class Heard:
    """What the shipped graph makes of one window; arrays as our inputs and outputs have them."""

    audio: Array
    state: Array
    probability: Array
    next_state: Array


@cache
def shipped_answers() -> tuple[Heard, ...]:
    """The recording through the graph as it is shipped, one window after the other."""
    session = open_bare(fetch(WEIGHTS, lambda _: None))
    rate = np.array(SAMPLE_RATE_HZ, np.int64)
    state = np.zeros((2, 1, 128), np.float32)
    heard = []
    for window in _windows(_recording()):
        audio = window[None]
        probability, following = session.run(None, {"input": audio, "state": state, "sr": rate})
        heard.append(Heard(audio, _batch_first(state), probability, _batch_first(following)))
        state = following
    return tuple(heard)


def _batch_first(state: Array) -> Array:
    return np.ascontiguousarray(state.transpose(1, 0, 2))


def _samples() -> Mapping[str, Mapping[str, Array]]:
    heard = {f"second {second:g}": _at(second) for second in SPEAKING}
    return {name: {"audio": one.audio, "state": one.state} for name, one in heard.items()}


def _at(second: float) -> Heard:
    return shipped_answers()[int(second * SAMPLE_RATE_HZ) // NEW]


def _fault(sample: str, outputs: Mapping[str, Array]) -> str | None:
    second = float(sample.removeprefix("second "))
    probability = float(outputs["probability"][0, 0])
    if (probability > THRESHOLD) == SPEAKING[second]:
        return None
    wanted = "speech" if SPEAKING[second] else "silence"
    return f"{wanted} at {sample} is speech with probability {probability:.2f}"


ENTRY = ZooEntry(
    name="voice_activity",
    summary="Silero VAD, 16 kHz, 32 ms at a time, state in and out",
    licence="MIT",
    weights=WEIGHTS,
    build=_build,
    samples=_samples,
    fault=_fault,
)
