"""One ONNX Runtime session from a model's configuration, on the provider that was asked for.

ONNX Runtime sizes its pool to the host and falls back to the CPU without a word, even for a
misspelt provider. Here thread counts are always stated, and a fallback is an error.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import onnxruntime
from onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

from serving.errors import MachineError, ModelError, ServerError
from serving.models.config import ModelConfig
from serving.models.repository import Model
from serving.protocol import Array, ProtocolError
from serving.providers import PROVIDERS, require_provider

_LOG_ERRORS_ONLY = 3


class Session:
    """Runs a model in the process that opened it. ``run`` may be called from several threads."""

    def __init__(self, config: ModelConfig, session: onnxruntime.InferenceSession) -> None:
        self._session = session
        self._names = [spec.name for spec in config.outputs]
        self._owner = os.getpid()
        self.provider: str = session.get_providers()[0]

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Output name to array, in the configuration's order.

        Raises:
            ProtocolError: the graph refuses these inputs, such as a length on a free axis.
            ServerError: the session was made before this process was forked; its threads stayed
                behind, so parallel execution and deletion would hang.
        """
        if os.getpid() != self._owner:
            raise ServerError(
                f"a session of process {self._owner} was used in process {os.getpid()}",
                hint="Open sessions after the fork, one in each worker.",
            )
        try:
            arrays = self._session.run(self._names, dict(inputs))
        except InvalidArgument as error:
            raise ProtocolError(f"the model refuses its inputs: {error}") from None
        return dict(zip(self._names, arrays, strict=True))


def open_session(model: Model, *, intra_op_threads: int | None = None) -> Session:
    """Load the newest version of ``model`` with the threads and provider its config states.

    Raises:
        MachineError: the provider is not there, or the session came up on another one.
        ModelError: ONNX Runtime cannot load the file.
    """
    config = model.config
    provider = require_provider(PROVIDERS[config.accelerator])
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = intra_op_threads or config.intra_op_threads
    options.inter_op_num_threads = config.inter_op_threads
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.log_severity_level = _LOG_ERRORS_ONLY
    # A thread that spins between operators takes the core that the next request needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    try:
        session = onnxruntime.InferenceSession(
            str(model.file), options, providers=[provider], enable_fallback=0
        )
    except Exception as error:
        # ONNX Runtime's exceptions share no base class.
        raise ModelError(
            f"{model.file} cannot be loaded: {str(error).splitlines()[0]}",
            hint=f"Build it again with `infersweep models build {model.name}`.",
        ) from None
    found = session.get_providers()[0]
    if found != provider:
        raise MachineError(
            f"model {model.name!r} asked for {provider} and got {found}",
            hint="`infersweep doctor` shows which library the provider lacks.",
        )
    return Session(config, session)
