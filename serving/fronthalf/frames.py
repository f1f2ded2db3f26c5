"""Real photographs as camera frames: what front halves are shown."""

from __future__ import annotations

import io
from collections.abc import Mapping

import numpy as np
from PIL import Image, ImageOps

from serving.fronthalf.photographs import PHOTOGRAPHS, photograph
from serving.fronthalf.picture import FrontHalf
from serving.protocol import Array

WIDTH, HEIGHT = 640, 480
"""VGA, as cameras on edge devices often send."""
JPEG_QUALITY = 85


def frame(name: str, width: int = WIDTH, height: int = HEIGHT) -> Image.Image:
    """The named photograph as a camera of that size sees it: cut to the aspect, never stretched."""
    return ImageOps.fit(photograph(name), (width, height))


def encoded(image: Image.Image) -> bytes:
    """As JPEG of quality 85, with Pillow's usual chroma subsampling of 4:2:0."""
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=JPEG_QUALITY)
    return stream.getvalue()


def frames_for(front: FrontHalf) -> Mapping[str, Array]:
    """By photograph, a row as ``front`` takes it, of a VGA frame.

    That is JPEG [1,1], or the frame letterboxed to pixels [1,H,W,3] uint8.
    """
    frames = {name: frame(name) for name in PHOTOGRAPHS}
    if front.payload == "jpeg":
        return {name: np.array([[encoded(image)]], np.object_) for name, image in frames.items()}
    return {name: front.letterbox(image)[None] for name, image in frames.items()}
