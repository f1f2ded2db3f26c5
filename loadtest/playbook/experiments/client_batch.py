"""Several rows in one request, on a server that may join requests by itself.

As many clients ask in each arm: a few more than the server has CPUs, so that it is never idle, and
no more, as rows of large requests wait long enough. No advice follows, since a client that has one
row at a time, such as a camera's newest frame, cannot follow it.
"""

from __future__ import annotations

from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import batched
from loadtest.playbook.served import Served

_JUDGED = 8
_MORE_CLIENTS = 3
_LEAST_WINDOW_S = 1.0
"""A request of many rows takes its time, and a window needs several."""


def _arms(lab: Lab) -> tuple[Served, ...]:
    most = lab.config.max_batch_size
    counts = dict.fromkeys((1, min(_JUDGED, most), *(n for n in (2, 4) if n <= most), most))
    return tuple(
        Served(
            f"{count}-row{'s' if count > 1 else ''}",
            f"{count} row{'s' if count > 1 else ''} in each request",
            load={
                "batch_size": count,
                "duration_s": max(_LEAST_WINDOW_S, lab.pace.window_s),
            },
            users=len(lab.server_cpus) + _MORE_CLIENTS,
        )
        for count in counts
    )


EXPERIMENT = Experiment(
    name="client-batch",
    title="Batches made by the client",
    claim="Sending rows together in one request gets them answered faster than one by one.",
    usual=(1.5, 4.0),
    page="scenarios.md",
    arms=_arms,
    missing=batched,
)
