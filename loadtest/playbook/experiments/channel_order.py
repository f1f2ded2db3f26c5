"""Frames with blue first, fed to a model that wants red first."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import rows_of, session_of
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import colour
from serving.protocol import Array


def _turned(inputs: Mapping[str, Array]) -> dict[str, Array]:
    """Pictures [n,3,H,W] with their channels the other way round, as arrays of their own."""
    return {name: np.ascontiguousarray(array[:, ::-1]) for name, array in inputs.items()}


def _build(job: Job) -> Calls:
    session, turns = session_of(job), job.arguments["turns"]
    as_captured = [_turned(inputs) for inputs in rows_of(job.model)]

    def run(frame: Mapping[str, Array]) -> Mapping[str, Array]:
        return session.run(_turned(frame) if turns else frame)

    return Calls(
        lambda number: run(as_captured[number % len(as_captured)]),
        lambda inputs: run(_turned(inputs)),
    )


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called(
            "RGB", "frames come blue first and are turned before inference", _build, {"turns": True}
        ),
        Called("BGR", "frames are fed blue first, as they come", _build, {"turns": False}),
    )


EXPERIMENT = Experiment(
    name="channel-order",
    title="Order of the colour channels",
    claim="Frames can be fed blue first, as OpenCV gives them; turning them is not worth its time.",
    usual=(1.0, 1.1),
    page="front-half.md",
    arms=_arms,
    missing=colour,
)
