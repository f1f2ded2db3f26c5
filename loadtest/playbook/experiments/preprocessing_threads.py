"""Photographs of a batch prepared by one thread, or by several."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from itertools import cycle, islice

import numpy as np

from loadtest.playbook.called import Called, Calls, Job
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.needs import pictures
from loadtest.playbook.picturing import front_of
from serving.errors import ParityError
from serving.fronthalf.frames import frames_for
from serving.protocol import Array

_PHOTOGRAPHS = 16


def _build(job: Job) -> Calls:
    front, threads = front_of(job.model, "jpeg"), job.arguments["threads"]
    rows = list(islice(cycle(frames_for(front).values()), _PHOTOGRAPHS))
    batch, alone = np.concatenate(rows), front.run
    pool = ThreadPoolExecutor(threads)

    def by_threads(_number: int) -> Array:
        return np.concatenate([*pool.map(alone, rows)])

    if not np.array_equal(by_threads(0), alone(batch)):
        raise ParityError("threads give other tensors than one", hint="This is a fault of ours.")
    return Calls(
        by_threads if threads > 1 else lambda _number: alone(batch),
        None,
        rows=_PHOTOGRAPHS,
        close=pool.shutdown,
        facts={"CPUs": str(len(job.cpus)), "tensors": "equal, whatever the threads"},
    )


def _arms(_lab: Lab) -> tuple[Called, ...]:
    def arm(threads: int, words: str) -> Called:
        what = f"{_PHOTOGRAPHS} JPEG photographs decoded, scaled and normalised by {words}"
        return Called(words, what, _build, {"threads": threads}, everywhere=True)

    return arm(1, "one thread"), arm(4, "four threads"), arm(2, "two threads")


EXPERIMENT = Experiment(
    name="preprocessing-threads",
    title="Threads that pre-process",
    claim="Four workers pre-process three times as many photographs as one.",
    usual=(2.0, 3.5),
    page="front-half.md",
    arms=_arms,
    missing=pictures,
)
