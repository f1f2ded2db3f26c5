"""The exporter beside one command: started before the load, stopped after the last scrape."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from loadtest.folder import ResultsFolder
from loadtest.observing.exporter import LAST_SCRAPE_LIMIT_S
from loadtest.targets import announced
from serving.errors import InfersweepError
from serving.process import RunningProcess, free_port, require_free_port

_GIVE_UP_S = 0.5


@dataclass(frozen=True)
class Publishing:
    """Attributes: ``port`` on loopback, a free one for ``None``; ``cpus`` are the generator's."""

    cpus: Sequence[int]
    port: int | None
    stage: Callable[[str], None]
    warn: Callable[[str], None]


@contextmanager
def published(folder: ResultsFolder, how: Publishing) -> Iterator[str | None]:
    """Publish the run in ``folder``; yields the address of its metrics.

    Whatever keeps it from being published is a warning and yields ``None``: the run matters more.
    """
    try:
        port = free_port() if how.port is None else require_free_port(how.port)
        argv = [sys.executable, "-m", "loadtest.observing.exporter"]
        argv += [str(folder.path), "--port", str(port)]
        process = RunningProcess(argv, cpus=how.cpus, log=folder.logs / "exporter.log")
    except InfersweepError as error:
        how.warn(f"this run is not published: {error}")
        yield None
        return
    url = f"http://127.0.0.1:{port}/metrics"
    with announced(url, {"job": "generator", "run": folder.path.name}, how.warn):
        grace_s = _GIVE_UP_S
        try:
            yield url
            grace_s = LAST_SCRAPE_LIMIT_S + 5.0
        finally:
            if not process.alive:
                how.warn(f"the exporter {process.ended()}: {process.log_tail(1)}")
            how.stage("waiting for the last scrape")
            process.stop(grace_s)
