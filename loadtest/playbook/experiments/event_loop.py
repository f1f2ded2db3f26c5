"""Inference inside a coroutine, and in a thread beside the event loop."""

from __future__ import annotations

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.own import FASTAPI, ON_THE_LOOP, on_gunicorn
from loadtest.playbook.served import Served
from serving.knobs.table import WORKER_CLASSES

_WORKERS = ("--worker-class", WORKER_CLASSES[0])


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return (
        Served(
            "on-the-loop",
            "FastAPI, the model runs inside the coroutine",
            own=on_gunicorn(ON_THE_LOOP, *_WORKERS),
        ),
        Served(
            "in-a-thread",
            "FastAPI, the model runs in a thread beside the event loop",
            own=on_gunicorn(FASTAPI, *_WORKERS),
        ),
    )


EXPERIMENT = Experiment(
    name="event-loop",
    title="Never block the event loop",
    claim="Never block the event loop: with inference in a thread, a worker answers more.",
    usual=(1.2, 3.0),
    page="backends.md",
    arms=_arms,
)
