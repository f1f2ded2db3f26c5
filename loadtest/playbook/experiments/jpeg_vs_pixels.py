"""A photograph as the JPEG that it is, or as pixels that the client decoded."""

from __future__ import annotations

from loadtest.playbook.called import Called
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import pictures
from loadtest.playbook.picturing import sending


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        sending(
            "pixels",
            "the client decodes and scales, and sends pixels of uint8",
            given="jpeg",
            sent="uint8",
        ),
        sending("jpeg", "the client sends its JPEG of VGA size", given="jpeg", sent="jpeg"),
    )


EXPERIMENT = Experiment(
    name="jpeg-vs-pixels",
    title="JPEG instead of pixels",
    claim="A JPEG is answered sooner than its pixels, even on loopback, where bytes cost little "
    "and the time is that of the CPUs.",
    usual=(1.2, 3.0),
    page="front-half.md",
    arms=_arms,
    missing=pictures,
)
