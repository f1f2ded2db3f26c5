"""A network that was left in training mode: its answers are others, however fast it is."""

from __future__ import annotations

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import pytorch
from loadtest.playbook.pytorch import network_calls
from serving.errors import ModelError
from serving.models.zoo.build import load_torch_module

_DIFFERENT = ("Dropout", "BatchNorm", "InstanceNorm", "RReLU")


def _left_in_training(job: Job) -> Calls:
    return network_calls(job, lambda module, _example: module.train())


def _arms(lab: Lab) -> tuple[Called, ...]:
    """Raises ModelError where no layer behaves differently in training."""
    kinds = {type(layer).__name__ for layer in load_torch_module(lab.model.name).modules()}
    if not any(word in kind for kind in kinds for word in _DIFFERENT):
        raise ModelError(
            f"{lab.model.name} has no layer that behaves differently in training mode",
            hint="Leaving eval() out changes nothing.",
        )
    return (
        Called("eval", "PyTorch eager in eval mode", network_calls),
        Called("training", "eval() forgotten: in training mode", _left_in_training),
    )


EXPERIMENT = Experiment(
    name="eval-forgotten",
    title="eval() forgotten",
    claim="Leaving out eval() makes no difference at inference.",
    usual=(1.0, 1.0),
    page="methodology.md",
    arms=_arms,
    missing=pytorch,
)
