"""TorchScript made by tracing against TorchScript made from the source."""

from __future__ import annotations

import re
from typing import Any

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import pytorch
from loadtest.playbook.pytorch import network_calls
from serving.backends.fastapi.engines import scripted, traced
from serving.errors import ModelError
from serving.models.zoo.build import load_torch_module


def _script(job: Job) -> Calls:
    return network_calls(job, scripted)


def _trace(job: Job) -> Calls:
    return network_calls(job, traced)


def _require_scripted(module: Any, name: str) -> None:
    """Raises ModelError with the line that TorchScript refuses."""
    import torch  # noqa: PLC0415

    try:
        torch.jit.script(module)
    except Exception as error:
        # TorchScript raises whatever its compiler comes across.
        why, *rest = [line.strip() for line in str(error).splitlines() if line.strip()]
        where = re.search(r'([^/"]+)", line (\d+)', " ".join(rest))
        told = f" ({where[1]}, line {where[2]})" if where else ""
        raise ModelError(
            f"{name} cannot be scripted: {why.rstrip(':.')}{told}", hint="Trace it instead."
        ) from None


def _arms(lab: Lab) -> tuple[Called, ...]:
    """Raises ModelError when the network does not compile, before anything starts."""
    _require_scripted(load_torch_module(lab.model.name), lab.model.name)
    return (
        Called("script", "TorchScript of the source, frozen", _script, warm_up_s=1.0),
        Called("trace", "TorchScript of a trace, frozen", _trace, warm_up_s=1.0),
        Called("eager", "PyTorch eager in inference mode", network_calls),
    )


EXPERIMENT = Experiment(
    name="torchscript-trace-vs-script",
    title="TorchScript traced instead of scripted",
    claim="Traced TorchScript is steadier than scripted: its slowest answers are faster.",
    usual=(1.1, 1.5),
    page="backends.md",
    arms=_arms,
    missing=pytorch,
    measure="slowest",
)
