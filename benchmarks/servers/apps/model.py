"""What every public server is given: one session on one thread, opened as infersweep opens it.

These files run in the environments of the servers, beside nothing but NumPy and ONNX Runtime.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np
import onnxruntime

PORT = int(os.environ["PEER_PORT"])
BATCH = int(os.environ["PEER_BATCH"])


class Model:
    """One float32 input and one output, each with a batch axis."""

    def __init__(self) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        file = os.environ["PEER_MODEL"]
        self._session = onnxruntime.InferenceSession(file, options, ["CPUExecutionProvider"])
        (given,), (answer,) = self._session.get_inputs(), self._session.get_outputs()
        self.input, self.output = given.name, answer.name
        self._row = given.shape[1:]

    def run(self, rows: np.ndarray) -> np.ndarray:
        answer: np.ndarray = self._session.run([self.output], {self.input: rows})[0]
        return answer

    def answer(self, bodies: Sequence[bytes]) -> list[bytes]:
        """One row of raw bytes per request, and per answer."""
        rows = np.frombuffer(b"".join(bodies), np.float32).reshape(len(bodies), *self._row)
        return [row.tobytes() for row in self.run(rows)]
