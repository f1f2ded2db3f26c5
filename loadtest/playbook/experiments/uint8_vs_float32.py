"""Pixels as integers that the server normalises, or as float32 that the client normalised."""

from __future__ import annotations

from loadtest.playbook.called import Called
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import pictures
from loadtest.playbook.picturing import sending


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        sending(
            "float32", "the client normalises and sends float32", given="uint8", sent="float32"
        ),
        sending(
            "uint8", "the client sends pixels, the server normalises", given="uint8", sent="uint8"
        ),
    )


EXPERIMENT = Experiment(
    name="uint8-vs-float32",
    title="Integers instead of floats",
    claim="Pixels sent as integers, a quarter of the bytes, are answered sooner than floats.",
    usual=(1.2, 2.0),
    page="front-half.md",
    arms=_arms,
    missing=pictures,
)
