"""Real photographs that come inside scikit-image, so that tests and loads need no download."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from PIL.Image import Image

PHOTOGRAPHS = {
    "cat": "chelsea.png",
    "astronaut": "astronaut.png",
    "coffee": "coffee.png",
    "rocket": "rocket.jpg",
    "motorcycle": "motorcycle_left.png",
    "galaxies": "hubble_deep_field.jpg",
    "retina": "retina.jpg",
    "tissue": "ihc.png",
}


def photograph(name: str) -> Image:
    """The named photograph in RGB."""
    from importlib.resources import files  # noqa: PLC0415  (only builds and loads need pictures)

    from PIL import Image  # noqa: PLC0415

    with files("skimage.data").joinpath(PHOTOGRAPHS[name]).open("rb") as stream:
        return Image.open(stream).convert("RGB")
