"""What runs the model inside a worker. An engine is made after the fork and stays there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from serving.models.repository import Model
from serving.protocol import Array
from serving.session import open_session


class Engine(Protocol):
    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Output name to array, for inputs that have been validated."""
        ...


class TorchEngine:
    """PyTorch eager in inference mode, on as many threads as the configuration states."""

    def __init__(self, model: Model) -> None:
        import torch  # noqa: PLC0415  (a second of start-up that the other engine does not need)

        from serving.models.zoo.build import load_torch_module  # noqa: PLC0415

        self._torch = torch
        torch.set_num_threads(model.config.intra_op_threads)
        torch.set_num_interop_threads(model.config.inter_op_threads)
        self._module = load_torch_module(model.name)
        self._names = tuple(spec.name for spec in model.config.outputs)
        self._inputs = tuple(spec.name for spec in model.config.inputs)

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        with self._torch.inference_mode():
            # The request's bytes are read-only, and PyTorch wants memory it may write to.
            tensors = [self._torch.from_numpy(np.array(inputs[name])) for name in self._inputs]
            answer = self._module(*tensors)
        parts = answer if isinstance(answer, (tuple, list)) else (answer,)
        return {name: part.numpy() for name, part in zip(self._names, parts, strict=True)}


def open_engine(name: str, model: Model) -> Engine:
    """The engine called ``name``, loaded and ready."""
    return TorchEngine(model) if name == "torch" else open_session(model)
