"""What speaks HTTP in a worker of gunicorn."""

from __future__ import annotations

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.served import Served
from serving.knobs.table import GUNICORN_ASGI, WORKER_CLASSES

_FAST, _H11 = WORKER_CLASSES[:2]
_WHAT = {
    _H11: "uvicorn with h11 on asyncio, all in Python",
    _FAST: "uvicorn with httptools on uvloop, in C",
    GUNICORN_ASGI: "gunicorn's own ASGI worker",
}


def _arms(_lab: Lab) -> tuple[Served, ...]:
    return tuple(
        Served(
            one.rpartition(".")[2],
            f"FastAPI, {what}",
            backend="fastapi",
            setting={"worker_class": one},
        )
        for one, what in _WHAT.items()
        if one in WORKER_CLASSES
    )


EXPERIMENT = Experiment(
    name="gunicorn-worker-class",
    title="httptools and uvloop",
    claim="HTTP parsed in C on uvloop serves more than a parser and a loop in Python.",
    usual=(1.2, 2.0),
    page="tuning-knobs.md",
    arms=_arms,
)
