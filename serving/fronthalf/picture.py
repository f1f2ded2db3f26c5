"""Decode, letterbox, normalise. Pure; needs NumPy and Pillow alone, and nothing of this project.

A picture of another size than the model's is scaled with its aspect kept, and padded: never
stretched. Pillow scales with the same integer arithmetic on every machine, and the rest is one
subtraction and one division of float32 for each value, so equal pictures give equal tensors.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

Payload = Literal["jpeg", "uint8"]
Channels = Literal["RGB", "BGR", "GREY"]

PREFIX = "front_"
"""Of the parameters of ``config.pbtxt`` that state a front half."""
MOST_PIXELS = 50_000_000
"""Of one picture; a few hundred bytes of JPEG may claim to be more than memory holds."""
_JPEG_FAULTS = (OSError, ValueError, SyntaxError, Image.DecompressionBombError)


class PictureError(ValueError):
    """A picture that cannot be read; one line says why, and the client is at fault."""


@dataclass(frozen=True)
class FrontHalf:
    """What is done to each picture.

    Attributes:
        payload: ``jpeg`` for a file of any size, ``uint8`` for RGB pixels of the model's own size.
        height, width: of the model's input.
        channels: their order in the tensor; ``GREY`` is one channel, the mean of the three.
        mean, std: a value v of 0..255 becomes (v - mean) / std; one for all channels, or one each.
        fill: grey value of the margins, 0..255.
    """

    payload: Payload
    height: int
    width: int
    channels: Channels = "RGB"
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    fill: int = 127

    def __post_init__(self) -> None:
        """Raises ValueError for what is no front half."""
        if self.payload not in get_args(Payload):
            raise ValueError(f"payload {self.payload!r} is none of {', '.join(get_args(Payload))}")
        if self.channels not in get_args(Channels):
            raise ValueError(
                f"channels {self.channels!r} are none of {', '.join(get_args(Channels))}"
            )
        if self.height < 1 or self.width < 1:
            raise ValueError(f"a picture of {self.height} x {self.width}")
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, self.depth) or not np.isfinite(values).all():
                raise ValueError(f"{name} has {len(values)} values: write one, or {self.depth}")
        if 0 in self.std or not 0 <= self.fill <= 255:
            raise ValueError("std must not be 0, and fill must lie in 0..255")

    @classmethod
    def from_parameters(cls, parameters: Mapping[str, str], dims: Sequence[int]) -> FrontHalf:
        """What ``config.pbtxt`` states; ``dims`` are those of the step's output, [C,H,W].

        Raises:
            ValueError: a parameter is missing, unknown or cannot be read, or ``dims`` do not fit.
        """
        stated = {
            key.removeprefix(PREFIX): text
            for key, text in parameters.items()
            if key.startswith(PREFIX)
        }
        given: Any = {key: stated.pop(key) for key in ("payload", "channels") if key in stated}
        for key in ("mean", "std"):
            if key in stated:
                given[key] = tuple(float(part) for part in stated.pop(key).split(","))
        if "fill" in stated:
            given["fill"] = int(stated.pop("fill"))
        if stated or "payload" not in given:
            raise ValueError(f"parameter {PREFIX}{next(iter(stated), 'payload')}")
        if len(dims) != 3:
            raise ValueError(f"dims {list(dims)} are not [channels, height, width]")
        found = cls(height=dims[1], width=dims[2], **given)
        if found.depth != dims[0]:
            raise ValueError(f"channels {found.channels} do not fit dims {list(dims)}")
        return found

    def parameters(self) -> dict[str, str]:
        """What ``from_parameters`` reads, but for the size."""
        return {
            f"{PREFIX}payload": self.payload,
            f"{PREFIX}channels": self.channels,
            f"{PREFIX}mean": ",".join(map(_written, self.mean)),
            f"{PREFIX}std": ",".join(map(_written, self.std)),
            f"{PREFIX}fill": str(self.fill),
        }

    @property
    def depth(self) -> int:
        """Channels of the tensor."""
        return 1 if self.channels == "GREY" else 3

    def run(self, rows: Any) -> Any:
        """Tensors [n,C,H,W] float32 of JPEG files [n,1] or of pixels [n,H,W,3] uint8.

        Raises:
            PictureError: a row is no picture that can be read.
        """
        tensors = np.empty((len(rows), self.depth, self.height, self.width), np.float32)
        for row, tensor in zip(rows, tensors, strict=True):
            pixels = row if self.payload == "uint8" else self.letterbox(decode(row[0]))
            self._normalise(pixels, tensor)
        return tensors

    def letterbox(self, image: Image.Image) -> Any:
        """Pixels [H,W,3] uint8: the picture as large as fits, in the middle of grey margins.

        Raises:
            PictureError: it is so thin that no pixel of it would be left.
        """
        size = (self.width, self.height)
        if image.size != size:
            scale = min(self.width / image.width, self.height / image.height)
            if round(min(image.size) * scale) < 1:
                raise PictureError(
                    f"a picture of {image.width} x {image.height} is too thin for "
                    f"{self.width} x {self.height}"
                )
            fill = (self.fill,) * 3
            image = ImageOps.pad(image, size, method=Image.Resampling.BILINEAR, color=fill)
        return np.asarray(image)

    def _normalise(self, pixels: Any, tensor: Any) -> None:
        if self.channels == "GREY":
            # A mean over so short an axis is slow; sums of whole numbers are exact in any order.
            total = pixels[:, :, 0].astype(np.float32) + pixels[:, :, 1] + pixels[:, :, 2]
            pixels = (total / np.float32(3))[:, :, None]
        elif self.channels == "BGR":
            pixels = pixels[:, :, ::-1]
        mean, std = (
            np.array(values, np.float32).reshape(-1, 1, 1) for values in (self.mean, self.std)
        )
        np.subtract(pixels.transpose(2, 0, 1), mean, out=tensor, dtype=np.float32)
        np.divide(tensor, std, out=tensor)


def _written(number: float) -> str:
    """Such that the same number is read again."""
    return str(int(number)) if number == int(number) else repr(float(number))


def decode(content: bytes) -> Image.Image:
    """A JPEG file in RGB, as it was stored: no turning by its EXIF data.

    Raises:
        PictureError: it is none, is cut off, or has too many pixels.
    """
    try:
        image = Image.open(io.BytesIO(content), formats=("JPEG",))
        if image.width * image.height > MOST_PIXELS:
            raise ValueError(f"{image.width} x {image.height} pixels are more than {MOST_PIXELS}")
        return image.convert("RGB")
    except UnidentifiedImageError:
        raise PictureError(f"{len(content)} bytes are no JPEG picture") from None
    except _JPEG_FAULTS as error:
        reason = " ".join(str(error).split())
        raise PictureError(f"a JPEG picture that cannot be read: {reason}") from None
