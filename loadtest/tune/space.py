"""Every setting that a search may try: axes, what makes no sense together, and how many. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations, product
from random import Random

from serving import knobs
from serving.errors import UsageError
from serving.knobs import Axis, Room, Setting

Point = tuple[int, ...]
"""A setting as one rank per axis, from 0."""

VARIANT = "variant"
"""The axis of which file is served: the model itself or one of its variants."""

COUNTED = 100_000
"""Up to so many combinations of values are gone through one by one."""
_DRAWN = 50_000


@dataclass(frozen=True)
class Size:
    """Attributes: ``exact`` is false where ``settings`` is an estimate from a sample."""

    settings: int
    exact: bool

    @property
    def text(self) -> str:
        return f"{self.settings:,}" if self.exact else f"about {float(f'{self.settings:.2g}'):,.0f}"


@dataclass(frozen=True)
class Space:
    """Settings that launch the same server are one: the canonical one.

    Attributes:
        refusal: why a setting makes no sense; empty when it does.
        canonical: the setting with what has no effect at its default.
    """

    axes: tuple[Axis, ...]
    refusal: Callable[[Setting], str] = lambda _: ""
    canonical: Callable[[Setting], Setting] = lambda setting: setting

    @property
    def default(self) -> Point:
        return tuple(axis.values.index(axis.default) for axis in self.axes)

    def setting(self, point: Point) -> Setting:
        """Every axis with its value."""
        return {axis.knob: axis.values[i] for axis, i in zip(self.axes, point, strict=True)}

    def changes(self, point: Point) -> Setting:
        """What differs from the default."""
        return {
            axis.knob: axis.values[i]
            for axis, i in zip(self.axes, point, strict=True)
            if axis.values[i] != axis.default
        }

    def holds(self, point: Point) -> bool:
        """Whether it makes sense and is canonical."""
        setting = self.setting(point)
        if self.refusal(setting):
            return False
        same = self.canonical(setting)
        return all(same[axis.knob] == setting[axis.knob] for axis in self.axes)

    @property
    def combinations(self) -> int:
        """Of all values, whether they make sense together or not."""
        return math.prod(len(axis.values) for axis in self.axes)

    @cached_property
    def members(self) -> tuple[Point, ...] | None:
        """Every setting; ``None`` where there are too many combinations to go through."""
        if self.combinations > COUNTED:
            return None
        ranks = product(*(range(len(axis.values)) for axis in self.axes))
        return tuple(point for point in ranks if self.holds(point))

    @cached_property
    def size(self) -> Size:
        if self.members is not None:
            return Size(len(self.members), exact=True)
        rng = Random(0)
        share = sum(self.holds(self._any(rng)) for _ in range(_DRAWN)) / _DRAWN
        return Size(max(1, round(share * self.combinations)), exact=False)

    def draw(self, rng: Random, tries: int) -> Iterator[Point]:
        """Those that make sense of so many random combinations."""
        return (point for _ in range(tries) if self.holds(point := self._any(rng)))

    def near(self, point: Point) -> Iterator[Point]:
        """Those with one or two other values; one may need another to have an effect."""
        for count in (1, 2):
            for axes in combinations(range(len(self.axes)), count):
                choices = [
                    [i for i in range(len(self.axes[axis].values)) if i != point[axis]]
                    for axis in axes
                ]
                for values in product(*choices):
                    other = dict(zip(axes, values, strict=True))
                    found = tuple(other.get(axis, i) for axis, i in enumerate(point))
                    if self.holds(found):
                        yield found

    def _any(self, rng: Random) -> Point:
        return tuple(rng.randrange(len(axis.values)) for axis in self.axes)


def space_of(label: str, rooms: Mapping[str, Room], only: Sequence[str] = ()) -> Space:
    """What can be turned on a backend.

    Args:
        label: the backend.
        rooms: by the name of a model; the first is the model itself, the others its variants.
        only: names of knobs to search over; all where it is empty.

    Raises:
        UsageError: nothing can be turned.
    """
    own, *variants = rooms
    found = knobs.axes(label, rooms[own])
    if variants:
        found = (*found, Axis(VARIANT, (own, *variants), own))
    found = tuple(axis for axis in found if not only or axis.knob in only)
    if not found:
        raise UsageError(
            f"{label} has nothing to turn here",
            hint="Name a backend that infersweep starts, and a knob of it with two values or more.",
        )

    def split(setting: Setting) -> tuple[Setting, Room]:
        turned = {knob: value for knob, value in setting.items() if knob != VARIANT}
        return turned, rooms[setting.get(VARIANT, own)]

    def refusal(setting: Setting) -> str:
        turned, room = split(setting)
        return knobs.allowed(label, turned, room)

    def canonical(setting: Setting) -> Setting:
        turned, room = split(setting)
        return {**setting, **knobs.canonical(label, turned, room)}

    return Space(found, refusal, canonical)
