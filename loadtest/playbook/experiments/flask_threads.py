"""Flask on one thread or on four in each worker."""

from __future__ import annotations

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import package
from loadtest.playbook.own import FLASK, on_gunicorn
from loadtest.playbook.served import Served


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return (
        Served(
            "sync",
            "Flask on gunicorn's sync worker, which closes each connection",
            own=on_gunicorn(FLASK, "--worker-class", "sync"),
        ),
        Served(
            "gthread",
            "Flask on gunicorn's gthread worker, threads: 4, connections kept",
            own=on_gunicorn(FLASK, "--worker-class", "gthread", "--threads", "4"),
        ),
    )


EXPERIMENT = Experiment(
    name="flask-threads",
    title="Threads for Flask",
    claim="Four threads in a worker let Flask serve more.",
    usual=(1.2, 4.0),
    page="backends.md",
    arms=_arms,
    missing=package("flask"),
)
