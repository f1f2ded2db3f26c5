"""The first answer of a session that was just opened, against later ones."""

from __future__ import annotations

from collections.abc import Mapping

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.engines import rows_of, session_calls, session_of
from loadtest.playbook.experiment import Experiment, Lab
from serving.protocol import Array
from serving.session import Session


def _cold(job: Job) -> Calls:
    """A session is opened before each call, which is not timed."""
    inputs = rows_of(job.model)
    held: list[Session] = []

    def open_another(_number: int) -> None:
        if held:
            held.pop().close()
        held.append(session_of(job))

    def run(row: Mapping[str, Array]) -> Mapping[str, Array]:
        return held[0].run(row)

    open_another(0)
    return Calls(lambda number: run(inputs[number % len(inputs)]), run, before=open_another)


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called("first", "the first answer of a session", _cold),
        Called("warm", "a session that has answered before", session_calls),
    )


EXPERIMENT = Experiment(
    name="warm-up",
    title="Warm-up",
    claim="The first answers are slow: warm a server up before it counts.",
    usual=(2.0, 10.0),
    page="methodology.md",
    arms=_arms,
    measure="p50",
)
