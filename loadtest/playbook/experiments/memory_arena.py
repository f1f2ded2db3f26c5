"""The memory that ONNX Runtime keeps between runs, under load.

It is off in the baseline, so that the ratio says what it buys; the memory that it costs stands
beside it. No advice follows: it is on unless a configuration turns it off.
"""

from __future__ import annotations

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.served import Served


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return (
        Served("off", "memory is given back after each run", setting={"memory_arena": "off"}),
        Served("on", "memory is kept between runs", setting={"memory_arena": "on"}),
    )


EXPERIMENT = Experiment(
    name="memory-arena",
    title="Memory arena of ONNX Runtime",
    claim="The memory arena is worth its memory: a server with it is faster.",
    usual=(1.05, 1.5),
    page="tuning-knobs.md",
    arms=_arms,
)
