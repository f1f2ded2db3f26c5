"""Pixels normalised row by row in Python, or by one expression of NumPy."""

from __future__ import annotations

from itertools import cycle, islice

import numpy as np

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import colour
from loadtest.playbook.picturing import front_of
from serving.errors import ParityError
from serving.fronthalf import FrontHalf
from serving.fronthalf.frames import frames_for
from serving.protocol import Array

_PICTURES = 16


def _looped(front: FrontHalf, pixels: Array) -> Array:
    """Pixels [n,H,W,3] uint8 to [n,3,H,W] float32, a row of one channel at a time."""
    mean, std = _of_channels(front)
    found = np.empty((len(pixels), 3, front.height, front.width), np.float32)
    for picture in range(len(pixels)):
        for channel in range(3):
            for row in range(front.height):
                line = pixels[picture, row, :, channel].astype(np.float32)
                found[picture, channel, row] = (line - mean[channel]) / std[channel]
    return found


def _vectorised(front: FrontHalf, pixels: Array) -> Array:
    mean, std = _of_channels(front)
    normalised = (pixels.astype(np.float32) - mean) / std
    return np.ascontiguousarray(normalised.transpose(0, 3, 1, 2))


def _in_place(front: FrontHalf, pixels: Array) -> Array:
    found: Array = front.run(pixels)
    return found


def _of_channels(front: FrontHalf) -> tuple[Array, Array]:
    mean, std = (
        np.broadcast_to(np.array(values, np.float32), 3) for values in (front.mean, front.std)
    )
    return mean, std


_WAYS = {
    "looped": (_looped, "loops over pictures, channels and rows"),
    "vectorised": (_vectorised, "one expression of NumPy over the batch"),
    "in place": (_in_place, "picture by picture into one array, as our front half does it"),
}


def _build(job: Job) -> Calls:
    front, (way, _) = front_of(job.model, "uint8"), _WAYS[job.arguments["way"]]
    pixels = np.concatenate(list(islice(cycle(frames_for(front).values()), _PICTURES)))
    if not np.array_equal(way(front, pixels), front.run(pixels)):
        raise ParityError("the ways give different tensors", hint="This is a fault of ours.")
    facts = {"tensors": "equal to the front half's, bit by bit"}
    return Calls(lambda _number: way(front, pixels), None, rows=_PICTURES, facts=facts)


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return tuple(
        Called(name, f"{_PICTURES} pictures of uint8 normalised: {words}", _build, {"way": name})
        for name, (_, words) in _WAYS.items()
    )


EXPERIMENT = Experiment(
    name="preprocessing-vectorised",
    title="Vectorised pre-processing",
    claim="Vectorised normalising is many times as fast as loops in Python.",
    usual=(2.0, 10.0),
    page="front-half.md",
    arms=_arms,
    missing=colour,
)
