"""RAPTOR: one recurrent policy that flies quadrotors it has never seen.

Eschmann, Albani and Loianno, "RAPTOR: A Foundation Policy for Quadrotor Control" (2025). The
checkpoint is HDF5 and brings an example along: 500 steps of two streams, with the actions.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import numpy as np

from serving.models.weights import PackagedFile, fetch
from serving.models.zoo.assemble import write_graph
from serving.models.zoo.entry import ZooEntry
from serving.protocol import Array

STATE_WIDTH = 16
STEPS = (0, 1, 2, 10, 50, 100, 250, 499)
"""Those of the example that are samples, each for both streams."""
TOLERANCE = 1e-5

WEIGHTS = PackagedFile(
    package="foundation-policy",
    version="1.0.2",
    member="foundation_policy-1.0.2/foundation_policy/blob/checkpoint.h5",
    sha256="db11f14ca2a8547f646d9baa57ccceaaff00b1be1c751b632641f514972355c5",
    licence="MIT",
    sdist=True,
)

# The GRU of ONNX with linear_before_reset=1 is that of the checkpoint, gates in another order.
_GRAPH = f"""
<ir_version: 8, opset_import: ["" : 17]>
flight_policy (float[batch, 22] observation, float[batch, {STATE_WIDTH}] state)
    => (float[batch, 4] action, float[batch, {STATE_WIDTH}] next_state)
<int64[1] time = {{0}}>
{{
    projected = Gemm <transB = 1> (observation, input_weights, input_biases)
    features = Relu (projected)
    step = Unsqueeze (features, time)
    before = Unsqueeze (state, time)
    all, after = GRU <hidden_size = {STATE_WIDTH}, linear_before_reset = 1>
        (step, gates_input, gates_hidden, gates_biases, , before)
    next_state = Squeeze (after, time)
    action = Gemm <transB = 1> (next_state, output_weights, output_biases)
}}
"""


def checkpoint(file: Path) -> dict[str, Array]:
    """Every array of the checkpoint, by its path: ``actor/layers/...`` and ``example/...``."""
    import h5py  # noqa: PLC0415  (only builds and loads read it)

    found: dict[str, Array] = {}

    def keep(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            found[name.removesuffix("/parameters")] = item[()]

    with h5py.File(file) as opened:
        opened.visititems(keep)
    return found


def _build(weights: Path, target: Path) -> None:
    arrays = checkpoint(weights)
    layer = "actor/layers/"
    gates = {
        what: _update_gate_first(arrays[f"{layer}1/{what}"])
        for what in ("weights_input", "weights_hidden", "biases_input", "biases_hidden")
    }
    graph_weights = {
        "input_weights": arrays[layer + "0/weights"],
        "input_biases": arrays[layer + "0/biases"],
        "gates_input": gates["weights_input"][None],
        "gates_hidden": gates["weights_hidden"][None],
        "gates_biases": np.concatenate([gates["biases_input"], gates["biases_hidden"]])[None],
        "output_weights": arrays[layer + "2/weights"],
        "output_biases": arrays[layer + "2/biases"],
    }
    write_graph(_GRAPH, graph_weights, target)


def _update_gate_first(rows: Array) -> Array:
    """From reset, update, new (as PyTorch has them) to update, reset, new (as ONNX has them)."""
    reset, update, new = np.split(rows, 3)
    return np.concatenate([update, reset, new])


def _advance(arrays: Mapping[str, Array], observation: Array, state: Array) -> Array:
    """The next state [streams, 16] in plain NumPy, as the checkpoint's authors compute it."""
    layer = "actor/layers/"
    features = np.maximum(
        observation @ arrays[layer + "0/weights"].T + arrays[layer + "0/biases"], 0
    )
    from_input = features @ arrays[layer + "1/weights_input"].T + arrays[layer + "1/biases_input"]
    from_state = state @ arrays[layer + "1/weights_hidden"].T + arrays[layer + "1/biases_hidden"]
    reset_in, update_in, new_in = np.split(from_input, 3, axis=1)
    reset_state, update_state, new_state = np.split(from_state, 3, axis=1)
    reset = 1 / (1 + np.exp(-(reset_in + reset_state)))
    update = 1 / (1 + np.exp(-(update_in + update_state)))
    new = np.tanh(new_in + reset * new_state)
    following: Array = update * state + (1 - update) * new
    return following


@cache
def _example() -> tuple[Mapping[str, Mapping[str, Array]], Mapping[str, Array]]:
    """Samples, and the actions [1,4] that the checkpoint records for them; both by name."""
    arrays = checkpoint(fetch(WEIGHTS, lambda _: None))
    observations, actions = arrays["example/input"], arrays["example/output"]
    streams = range(observations.shape[1])
    state = np.zeros((len(streams), STATE_WIDTH), np.float32)
    samples, recorded = {}, {}
    for step, observation in enumerate(observations):
        if step in STEPS:
            for stream in streams:
                name, row = f"stream {stream} step {step}", slice(stream, stream + 1)
                samples[name] = {"observation": observation[row], "state": state[row]}
                recorded[name] = actions[step, row]
        state = _advance(arrays, observation, state)
    return samples, recorded


def _samples() -> Mapping[str, Mapping[str, Array]]:
    return _example()[0]


def _fault(sample: str, outputs: Mapping[str, Array]) -> str | None:
    wanted = _example()[1][sample]
    difference = float(np.abs(outputs["action"] - wanted).max())
    if difference <= TOLERANCE:
        return None
    return f"the action for {sample} is {difference:.2g} off the recorded one"


ENTRY = ZooEntry(
    name="flight_policy",
    summary="RAPTOR, a GRU that flies quadrotors, one step at a time",
    licence="MIT",
    weights=WEIGHTS,
    build=_build,
    samples=_samples,
    fault=_fault,
)
