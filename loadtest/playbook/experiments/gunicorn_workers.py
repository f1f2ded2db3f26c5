"""Worker processes of gunicorn."""

from __future__ import annotations

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.served import Served

_BETWEEN = 2
"""How many numbers of workers are only shown."""


def _arms(lab: Lab) -> tuple[Served, ...]:
    cpus = len(lab.server_cpus)
    many = 2 * cpus + 1
    between = range(cpus + 1, many)[:_BETWEEN]
    return tuple(
        Served(
            str(workers),
            f"FastAPI, gunicorn workers: {workers}, on so many CPUs: {cpus}",
            backend="fastapi",
            setting={"workers": str(workers)},
        )
        for workers in (cpus, many, *between)
    )


EXPERIMENT = Experiment(
    name="gunicorn-workers",
    title="2 x cores + 1 workers",
    claim="gunicorn serves best with 2 x cores + 1 workers, not with one for each core.",
    usual=(1.1, None),
    page="tuning-knobs.md",
    arms=_arms,
)
