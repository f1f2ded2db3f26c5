"""A small model that takes pictures, and pictures for it."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
from onnx import helper
from PIL import Image

from serving.deriving.pipeline import make_pipeline
from serving.fronthalf import FrontHalf, Payload
from serving.models.repository import Model
from serving.protocol import Array
from tests.sample_models import Port, write_model

HEIGHT, WIDTH = 48, 64
FRONT = FrontHalf("jpeg", HEIGHT, WIDTH, mean=(10.0, 20.0, 30.0), std=(2.0,))


def write_colours(root: Path) -> Model:
    """``colours`` [3] is the mean of each channel of ``image`` [3,48,64]; batched up to 8."""
    nodes = [
        helper.make_node("GlobalAveragePool", ["image"], ["means"]),
        helper.make_node("Flatten", ["means"], ["colours"]),
    ]
    image, colours = Port("image", "FP32", (3, HEIGHT, WIDTH)), Port("colours", "FP32", (3,))
    model = write_model(root, "colours", nodes, [image], [colours], max_batch_size=8)
    with (model.folder / "config.pbtxt").open("a") as stream:
        stream.write("dynamic_batching { }\n")
    return Model(root, model.name)


def write_pipeline(root: Path, payload: Payload) -> Model:
    """The model behind its front half."""
    return make_pipeline(write_colours(root), replace(FRONT, payload=payload), lambda _: None)


def noise(height: int = HEIGHT, width: int = WIDTH, seed: int = 1) -> Array:
    """Pixels [H,W,3] uint8 in which no two rows or channels are alike."""
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def jpeg(pixels: Array, kind: str = "JPEG", mode: str = "RGB") -> bytes:
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, kind)
    return stream.getvalue()


def rows(*files: bytes) -> Array:
    """Files as a tensor of BYTES, [n,1]."""
    array = np.empty((len(files), 1), np.object_)
    array[:, 0] = files
    return array


BROKEN = {
    "empty": (b"", "0 bytes are no JPEG picture"),
    "text": (b"no picture", "10 bytes are no JPEG picture"),
    "another format": (jpeg(noise(), "PNG"), "are no JPEG picture"),
    "too thin": (jpeg(noise(1, 9_000)), "a picture of 9000 x 1 is too thin for 64 x 48"),
    "cut off": (jpeg(noise())[:700], "image file is truncated"),
}
"""Files that no server may answer with anything but 400, and what it must say."""
