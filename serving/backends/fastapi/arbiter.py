"""What only gunicorn's arbiter can tell: the metrics of all its workers, and of workers as such."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.registry import Collector

from serving.backends.fastapi.worker_files import WorkerFiles, make_empty, remove
from serving.metrics import table


class ArbiterMetrics(Collector):
    """Computed at each scrape.

    Args:
        folder: where the workers keep their files; it is made, and emptied.
        workers: the process ids of those that run.
    """

    def __init__(self, folder: Path, workers: Callable[[], Iterable[int]]) -> None:
        """Raises MachineError when the folder cannot be written."""
        make_empty(folder)
        self._folder = folder
        self._files = WorkerFiles(folder)
        self._workers = workers
        self._restarts = 0
        self._missing = 0

    def ended(self, pid: int, *, missing: bool) -> None:
        """A worker has ended; it is ``missing`` when fewer are left than there should be."""
        mark_process_dead(pid, str(self._folder))  # type: ignore[no-untyped-call]
        self._missing += missing

    def starting(self) -> None:
        """A worker is about to start, in place of one that is missing if one is.

        Those that were told to end are never replaced: at the end of the server, when there are to
        be fewer of them, and at a reload, which starts the new ones before.
        """
        if self._missing:
            self._missing -= 1
            self._restarts += 1

    def remove(self) -> None:
        """Leave no files behind."""
        remove(self._folder)

    def collect(self) -> Iterable[Metric]:
        yield from self._files.collect()
        yield CounterMetricFamily(table.RESTARTS.name, table.RESTARTS.help, self._restarts)
        running = [threads for pid in self._workers() if (threads := _threads(pid))]
        for row, value in ((table.PROCESSES, len(running)), (table.THREADS, sum(running))):
            yield GaugeMetricFamily(row.name, row.help, value)


def _threads(pid: int) -> int:
    """How many the process has; 0 when it has ended."""
    try:
        return psutil.Process(pid).num_threads()
    except psutil.NoSuchProcess:
        return 0
