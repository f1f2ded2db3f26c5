"""Goodput of every setting as a formula, for asking how few settings a search takes. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from loadtest.tune.space import Point, Space
from serving.knobs import Axis


@dataclass(frozen=True)
class Landscape:
    """Attributes: ``sizes``: values on each axis; ``share`` of the settings that may be tried."""

    sizes: tuple[int, ...]
    goodput: Callable[[Point], float]
    share: float = 0.25

    @property
    def space(self) -> Space:
        """The default is the first value of each axis."""
        return Space(
            tuple(
                Axis(f"k{number}", tuple(map(str, range(size))), "0")
                for number, size in enumerate(self.sizes)
            )
        )


def batching(point: Point) -> float:
    """A batcher: larger batches cost less per row, and the best delay grows with them."""
    batch, delay, arena, heaps = point
    capacity = 1000 / (0.4 + 3 / 2**batch)
    return capacity * math.exp(-((delay - batch / 2) ** 2) / 8) * (1 - 0.07 * arena) + heaps


def ridge(point: Point) -> float:
    """Instances times threads should be about the number of CPUs."""
    counts = (1, 2, 3, 4, 6, 8)
    instances, intra, mode = counts[point[0]], counts[point[1]], point[2]
    off = math.log2(instances * intra / 6)
    return 100 * math.exp(-(off**2) / 1.5) * (1 + 0.2 * mode * (intra > 3))


def hill(point: Point) -> float:
    """A plateau with one hill, far from the default."""
    return 100 + 60 * math.exp(-((point[0] - 6) ** 2 + (point[1] - 1) ** 2) / 3)


def half(point: Point) -> float:
    """The same hill where half of the settings cannot meet the objectives at all."""
    return hill(point) if (point[0] + point[1]) % 2 else 0.0


def together(point: Point) -> float:
    """Knobs that help only together."""
    a, b, c, d, e, f = point
    return 100 * (1 + 0.3 * (a ^ b)) * (1 + 0.2 * (c & d)) * (1 + 0.02 * e) + f


LANDSCAPES: Mapping[str, Landscape] = {
    "batching": Landscape((6, 6, 2, 2), batching, 0.125),
    "ridge": Landscape((6, 6, 2), ridge),
    "hill": Landscape((8, 8), hill),
    "half": Landscape((8, 8), half),
    "together": Landscape((2,) * 6, together),
}
