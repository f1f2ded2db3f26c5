"""Bodies packed by gzip, or as they are."""

from __future__ import annotations

from statistics import fmean

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.clients import WHAT, Client, client_calls, server_of
from loadtest.playbook.engines import rows_of
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.served import Served

_LEVEL = 6
"""What zlib, and so most clients, take when nothing is said."""


def _build(job: Job) -> Calls:
    calls = client_calls(job)
    plain, packed = (
        fmean(len(client.encode(inputs)[0]) for inputs in rows_of(job.model))
        for client in (
            Client(server_of(job), job.model.name),
            Client(server_of(job), job.model.name, **job.arguments),
        )
    )
    facts = {"body": f"{packed:,.0f} bytes on average, {plain:,.0f} before gzip"}
    return Calls(calls.call, calls.answer, close=calls.close, facts=facts)


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called(
            "plain",
            f"bodies as they are; {WHAT}",
            client_calls,
            against=Served("server of plain", "the server"),
        ),
        Called(
            "gzip",
            f"bodies packed by gzip, level {_LEVEL}; {WHAT}",
            _build,
            {"gzip_level": _LEVEL},
            against=Served("server of gzip", "the server"),
        ),
    )


EXPERIMENT = Experiment(
    name="gzip",
    title="Compressed bodies",
    claim="Compressing the bodies makes requests faster.",
    usual=(1.2, 3.0),
    page="backends.md",
    arms=_arms,
)
