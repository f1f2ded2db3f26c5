"""PyTorch networks as experiments call them: real inputs in, outputs by their names out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import numpy as np

from loadtest.playbook.called import Calls, Job
from loadtest.playbook.engines import rows_of
from serving.models.repository import Model
from serving.models.zoo.build import load_torch_module
from serving.protocol import Array

if TYPE_CHECKING:
    from torch import Tensor, nn

Network = Callable[..., Any]
Prepare = Callable[["nn.Module", tuple["Tensor", ...]], Network]
"""From the module in eval mode and example inputs to what is called."""


def as_it_is(module: nn.Module, _example: tuple[Tensor, ...]) -> Network:
    """PyTorch eager."""
    return module


def torch_for(job: Job) -> Any:
    """PyTorch with as many threads as the process has CPUs."""
    import torch  # noqa: PLC0415  (seconds of start-up, for the process that needs it alone)

    torch.set_num_threads(len(job.cpus))
    torch.set_num_interop_threads(1)
    return torch


def network_calls(
    job: Job,
    prepare: Prepare = as_it_is,
    mode: Callable[[Any], AbstractContextManager[Any]] = lambda torch: torch.inference_mode(),
) -> Calls:
    """The model's own network on the CPU, called inside ``mode`` of PyTorch.

    Raises:
        ModelError: the model has no PyTorch module.
    """
    torch = torch_for(job)
    names = [spec.name for spec in job.model.config.outputs]
    inputs = rows_of(job.model)
    module = load_torch_module(job.model.name)
    with mode(torch):
        network = prepare(module, _tensors(torch, job.model, inputs[0]))

    def run(row: Mapping[str, Array]) -> Mapping[str, Array]:
        with mode(torch):
            answer = network(*_tensors(torch, job.model, row))
        parts = answer if isinstance(answer, (tuple, list)) else (answer,)
        return {name: part.detach().numpy() for name, part in zip(names, parts, strict=True)}

    count = len(inputs)
    facts = {"PyTorch": torch.__version__, "threads": str(torch.get_num_threads())}
    return Calls(lambda number: run(inputs[number % count]), run, facts=facts)


def device_calls(
    job: Job,
    call: Callable[[Any, nn.Module, list[tuple[Tensor, ...]]], Callable[[int], Any]],
) -> Calls:
    """The network on the first GPU; ``call`` makes what is called, from the inputs on the host.

    Each call is timed to its end on the device.

    Raises:
        ModelError: the model has no PyTorch module.
    """
    torch = torch_for(job)
    names = [spec.name for spec in job.model.config.outputs]
    module = load_torch_module(job.model.name).to("cuda")
    hosts = [_tensors(torch, job.model, row) for row in rows_of(job.model)]

    def timed(queue: Callable[[int], Any]) -> Callable[[int], Any]:
        def run(number: int) -> Any:
            with torch.inference_mode():
                answer = queue(number)
            torch.cuda.synchronize()
            return answer

        return run

    def answer(row: Mapping[str, Array]) -> Mapping[str, Array]:
        got = timed(call(torch, module, [_tensors(torch, job.model, row)]))(0)
        parts = got if isinstance(got, (tuple, list)) else (got,)
        return {name: part.float().cpu().numpy() for name, part in zip(names, parts, strict=True)}

    facts = {"PyTorch": torch.__version__, "GPU": torch.cuda.get_device_name(0)}
    return Calls(timed(call(torch, module, hosts)), answer, facts=facts)


def on_device(hosts: Sequence[tuple[Tensor, ...]]) -> list[tuple[Tensor, ...]]:
    """The same inputs on the first GPU."""
    return [tuple(part.to("cuda") for part in host) for host in hosts]


def _tensors(torch: Any, model: Model, row: Mapping[str, Array]) -> tuple[Tensor, ...]:
    # A sample's memory may be read-only, and PyTorch wants memory that it may write to.
    return tuple(torch.from_numpy(np.array(row[spec.name])) for spec in model.config.inputs)
