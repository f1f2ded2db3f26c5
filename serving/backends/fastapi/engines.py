"""What runs the model inside a worker. An engine is made after the fork and stays there."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from serving.models.repository import Model
from serving.models.samples import samples_for
from serving.pipelines import open_runner
from serving.protocol import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

Network = Callable[..., Any]
"""From tensors to a tensor, or to a tuple or list of them."""


class Engine(Protocol):
    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        """Output name to array, for inputs that have been validated."""
        ...


def eager(module: nn.Module, _: tuple[Tensor, ...]) -> Network:
    """The module itself."""
    return module


def traced(module: nn.Module, example: tuple[Tensor, ...]) -> Network:
    """TorchScript of the operations that ``example`` went through."""
    import torch  # noqa: PLC0415  (a second of start-up that an ONNX engine does not need)

    script = torch.jit.trace(module, example)  # type: ignore[no-untyped-call]
    frozen: Network = torch.jit.freeze(script)
    return frozen


def scripted(module: nn.Module, _: tuple[Tensor, ...]) -> Network:
    """TorchScript of the module's source, with its branches and loops."""
    import torch  # noqa: PLC0415

    frozen: Network = torch.jit.freeze(torch.jit.script(module))
    return frozen


def compiled(module: nn.Module, _: tuple[Tensor, ...]) -> Network:
    """Kernels that are written and compiled at the first call; one set for any number of rows."""
    import torch  # noqa: PLC0415

    return torch.compile(module, dynamic=True)


TORCH_ENGINES: Mapping[str, Callable[[nn.Module, tuple[Tensor, ...]], Network]] = {
    "torch": eager,
    "torchscript-trace": traced,
    "torchscript-script": scripted,
    "torch-compile": compiled,
}


class TorchEngine:
    """PyTorch in inference mode, on as many threads as the configuration states."""

    def __init__(self, name: str, model: Model) -> None:
        import torch  # noqa: PLC0415

        from serving.models.zoo.build import load_torch_module  # noqa: PLC0415

        self._torch = torch
        torch.set_num_threads(model.config.intra_op_threads)
        torch.set_num_interop_threads(model.config.inter_op_threads)
        self._names = tuple(spec.name for spec in model.config.outputs)
        self._inputs = tuple(spec.name for spec in model.config.inputs)
        row = samples_for(model)[0].inputs
        with torch.inference_mode():
            self._network = TORCH_ENGINES[name](load_torch_module(model.name), self._tensors(row))
        self._warm_up(row, (1, 2) if model.config.max_batch_size > 1 else (1,))

    def run(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        with self._torch.inference_mode():
            answer = self._network(*self._tensors(inputs))
        parts = answer if isinstance(answer, (tuple, list)) else (answer,)
        return {name: part.numpy() for name, part in zip(self._names, parts, strict=True)}

    def _tensors(self, inputs: Mapping[str, Array]) -> tuple[Tensor, ...]:
        # The request's bytes are read-only, and PyTorch wants memory it may write to.
        return tuple(self._torch.from_numpy(np.array(inputs[name])) for name in self._inputs)

    def _warm_up(self, row: Mapping[str, Array], counts: tuple[int, ...]) -> None:
        """What is compiled at the first calls of a shape is compiled before the worker is ready."""
        for count in counts:
            rows = {name: np.concatenate([array] * count) for name, array in row.items()}
            self.run(rows)
            # TorchScript optimises what it has seen once.
            self.run(rows)


def open_engine(name: str, model: Model) -> Engine:
    """The engine called ``name``, loaded and ready."""
    return TorchEngine(name, model) if name in TORCH_ENGINES else open_runner(model)
