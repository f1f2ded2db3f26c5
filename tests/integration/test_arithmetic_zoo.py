"""The operations of a model of the zoo, against PyTorch's own counter on the same network."""

from __future__ import annotations

import torch
from torch.utils.flop_counter import FlopCounterMode

from serving.arithmetic import measure
from serving.models.repository import find_model
from serving.models.samples import samples_for
from serving.models.zoo.build import ensure_built, load_torch_module


def test_the_image_classifier_is_counted_as_pytorch_counts_it() -> None:
    model = find_model("image_classifier")
    ensure_built(model, print)
    found = measure(model, samples_for(model)[0].inputs)
    with FlopCounterMode(display=False) as theirs, torch.inference_mode():
        load_torch_module(model.name)(torch.zeros(1, 3, 224, 224))
    assert found.flops == theirs.get_total_flops() == 770_375_104
