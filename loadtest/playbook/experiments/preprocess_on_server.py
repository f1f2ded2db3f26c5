"""Who pre-processes: the client, or the server."""

from __future__ import annotations

from loadtest.playbook.called import Called
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import pictures
from loadtest.playbook.picturing import sending


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        sending(
            "client",
            "the client decodes, scales and normalises, and sends float32",
            given="jpeg",
            sent="float32",
        ),
        sending(
            "server",
            "the client sends its JPEG of VGA size, the server does all the rest",
            given="jpeg",
            sent="jpeg",
        ),
    )


EXPERIMENT = Experiment(
    name="preprocess-on-server",
    title="Pre-processing on the server",
    claim="To leave decoding, scaling and normalising to the server is faster than to do it in "
    "the client.",
    usual=(1.2, 2.0),
    page="front-half.md",
    arms=_arms,
    missing=pictures,
)
