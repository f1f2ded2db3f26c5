"""PyTorch with autograd left on, against inference mode."""

from __future__ import annotations

from contextlib import nullcontext

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import pytorch
from loadtest.playbook.pytorch import network_calls

_MODES = {
    "autograd": lambda _torch: nullcontext(),
    "inference-mode": lambda torch: torch.inference_mode(),
    "no-grad": lambda torch: torch.no_grad(),
}


def _build(job: Job) -> Calls:
    return network_calls(job, mode=_MODES[job.arguments["mode"]])


def _arms(_lab: Lab) -> tuple[Called, ...]:
    words = {
        "autograd": "PyTorch eager, autograd left on",
        "inference-mode": "PyTorch eager in torch.inference_mode()",
        "no-grad": "PyTorch eager in torch.no_grad()",
    }
    return tuple(Called(name, words[name], _build, {"mode": name}) for name in _MODES)


EXPERIMENT = Experiment(
    name="inference-mode",
    title="Inference mode of PyTorch",
    claim="Without autograd's records, PyTorch answers faster.",
    usual=(1.1, 1.5),
    page="backends.md",
    arms=_arms,
    missing=pytorch,
)
