"""PyTorch eager against torch.compile; its compilation is part of the start-up."""

from __future__ import annotations

import shutil
from typing import Any

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import all_of, pytorch
from loadtest.playbook.pytorch import network_calls
from serving.backends.fastapi.engines import compiled
from serving.models.weights import cache_folder


def _compiled(module: Any, example: tuple[Any, ...]) -> Any:
    network: Any = compiled(module, example)
    network(*example)
    return network


def _build(job: Job) -> Calls:
    return network_calls(job, _compiled)


def _compiler(_lab: Lab) -> str:
    return "" if shutil.which("g++") else "torch.compile needs g++, and there is none on PATH"


def _arms(_lab: Lab) -> tuple[Called, ...]:
    # As the FastAPI baseline does: what was compiled before is found again.
    variables = {
        "TORCHINDUCTOR_CACHE_DIR": str(cache_folder() / "inductor"),
        "TORCHINDUCTOR_COMPILE_THREADS": "1",
    }
    return (
        Called("eager", "PyTorch eager in inference mode", network_calls),
        Called("compiled", "the same through torch.compile", _build, variables=variables),
    )


EXPERIMENT = Experiment(
    name="torch-compile",
    title="torch.compile",
    claim="torch.compile makes inference faster.",
    usual=(1.3, 2.0),
    page="backends.md",
    arms=_arms,
    missing=all_of(pytorch, _compiler),
    starts=1,
)
