"""Flask and FastAPI on gunicorn, each on the workers that people give it."""

from __future__ import annotations

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import package
from loadtest.playbook.own import FASTAPI, FLASK, on_gunicorn
from loadtest.playbook.served import Served
from serving.knobs.table import WORKER_CLASSES


def _arms(_lab: Lab) -> tuple[Served, ...]:
    fastapi = on_gunicorn(FASTAPI, "--worker-class", WORKER_CLASSES[0])
    threaded = on_gunicorn(FLASK, "--worker-class", "gthread", "--threads", "4")
    return (
        Served(
            "flask",
            "Flask on gunicorn's sync worker, which closes each connection",
            own=on_gunicorn(FLASK, "--worker-class", "sync"),
        ),
        Served("fastapi", "FastAPI on uvicorn's worker", own=fastapi),
        Served("flask-threads", "Flask on gunicorn's gthread worker, threads: 4", own=threaded),
    )


EXPERIMENT = Experiment(
    name="flask-vs-fastapi",
    title="FastAPI in place of Flask",
    claim="FastAPI serves two to three times as many requests as Flask.",
    usual=(2.0, 3.0),
    page="backends.md",
    arms=_arms,
    missing=package("flask"),
)
