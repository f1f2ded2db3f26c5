"""A connection for each request, or one that is kept."""

from __future__ import annotations

from loadtest.playbook.called import Called
from loadtest.playbook.clients import WHAT, client_calls
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.served import Served


def _arms(_lab: Lab) -> tuple[Called, ...]:
    return (
        Called(
            "new",
            f"a new connection for each request; {WHAT}",
            client_calls,
            {"keeps": False},
            against=Served("server of new", "the server"),
        ),
        Called(
            "kept",
            f"one connection, kept alive; {WHAT}",
            client_calls,
            {"keeps": True},
            against=Served("server of kept", "the server"),
        ),
    )


EXPERIMENT = Experiment(
    name="keep-alive",
    title="Connections kept alive",
    claim="A client that keeps its connection gets several times as many answers.",
    usual=(1.5, 5.0),
    page="methodology.md",
    arms=_arms,
)
