"""Publishes a run beside its generator: ``python -m loadtest.observing.exporter RESULTS``.

It reads what others write (boards, trials, samples of resources) when it is scraped, so a scrape
costs the generator nothing. On SIGTERM it stays for one more scrape where somebody scrapes it, so
that the last counts are seen.
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector
from pydantic import ValidationError

from loadtest import metrics
from loadtest.folder import ResultsFolder
from loadtest.live import Board, Counts, LoadLabels, boards_beside
from loadtest.resources.families import families
from loadtest.resources.log import last_sample
from loadtest.results import IN_PERCENTILES, OUTCOMES, VERDICTS, Trial
from serving.errors import InfersweepError, MachineError
from serving.exposition import cumulated, family_of
from serving.metrics import Metric

LAST_SCRAPE_LIMIT_S = 20.0
_LOW_PRIORITY = 10


class RunCollector(Collector):
    """The metrics of one results folder, as they are at the moment of a scrape.

    Attributes:
        scrapes: moments (``time.monotonic``) at which it was asked.
    """

    def __init__(self, folder: ResultsFolder) -> None:
        self._folder = folder
        self._run = folder.path.name
        self._model = folder.read_manifest().settings.model
        self._trials: list[Trial] = []
        self._read_bytes = 0
        self.scrapes: list[float] = []

    def collect(self) -> Iterable[Family]:
        self.scrapes.append(time.monotonic())
        yield from _load_families(self._run, list(_loads(self._folder)))
        yield self._verdicts()
        yield from _resource_families(self._run, self._folder)

    def _verdicts(self) -> Family:
        """Trials are read again only when there are more of them."""
        size_bytes = self._folder.trials.stat().st_size if self._folder.trials.is_file() else 0
        if size_bytes != self._read_bytes:
            self._trials, self._read_bytes = _readable(self._folder), size_bytes
        counts: Counter[tuple[str, ...]] = Counter()
        for trial in self._trials:
            for verdict in VERDICTS:
                labels = (self._run, trial.backend, self._model, trial.scenario, verdict)
                counts[labels] += verdict == trial.verdict
        family: CounterMetricFamily = family_of(metrics.TRIALS)
        for key, count in counts.items():
            family.add_metric(key, count)
        return family


class _Load:
    """The boards of one label set, added up; gauges are those of the newest."""

    def __init__(self, labels: LoadLabels, boards: list[Board]) -> None:
        self.labels = labels
        self._boards = boards
        self.bounds_s = [bound / 1e9 for bound in boards[0].bounds_ns]

    def total(self, field: str) -> Counts:
        return np.asarray(np.sum([board[field] for board in self._boards], axis=0))

    def newest(self, field: str) -> float:
        return float(self._boards[-1][field])

    def within(self, slo_ns: int) -> int:
        place = self._boards[0].bounds_ns.index(slo_ns)
        return int(self.total("response")[OUTCOMES.index("ok"), : place + 1].sum())


def _loads(folder: ResultsFolder) -> Iterator[_Load]:
    """One per label set; its boards are those of every visit, in the order they began."""
    found: dict[LoadLabels, list[Board]] = {}
    files = sorted(folder.live.glob("*.json"), key=lambda file: file.stat().st_mtime_ns)
    for file in files:
        try:
            labels = LoadLabels.model_validate_json(file.read_text(encoding="utf-8"))
            boards = [Board.read(path, labels.slo_ns) for path in boards_beside(file)]
        except (OSError, ValueError, ValidationError):
            # Just being written: the next scrape sees it.
            continue
        found.setdefault(labels, []).extend(boards)
    for labels, boards in found.items():
        if boards:
            yield _Load(labels, boards)


def _load_families(run: str, loads: list[_Load]) -> Iterator[Family]:
    counters = {
        metric: family_of(metric)
        for metric in (metrics.REQUESTS, metrics.DUE, metrics.WITHIN_SLO, metrics.SLO)
    }
    gauges = {m: family_of(m) for m in (metrics.LEVEL, metrics.PHASE, metrics.CEILING)}
    histograms = {
        "response": family_of(metrics.RESPONSE),
        "service": family_of(metrics.SERVICE),
        "lateness": family_of(metrics.LATENESS),
    }
    for load in loads:
        told = load.labels
        labels = [run, told.backend, told.model, told.scenario]
        outcomes = load.total("outcomes")
        for outcome, count in zip(OUTCOMES, outcomes.tolist(), strict=True):
            counters[metrics.REQUESTS].add_metric([*labels, outcome], count)
        # What has ended was due, also where the generator has not said so yet.
        due = max(int(load.total("due")), int(outcomes.sum()))
        counters[metrics.DUE].add_metric(labels, due)
        if told.slo_ns is not None:
            counters[metrics.WITHIN_SLO].add_metric(labels, load.within(told.slo_ns))
            counters[metrics.SLO].add_metric(labels, told.slo_ns / 1e9)
        gauges[metrics.LEVEL].add_metric(labels, load.newest("level"))
        gauges[metrics.PHASE].add_metric(labels, load.newest("phase"))
        if told.ceiling_rps is not None:
            gauges[metrics.CEILING].add_metric(labels, told.ceiling_rps)
        for field in ("response", "service"):
            _add_by_outcome(histograms[field], load, field, labels)
        buckets = cumulated(load.bounds_s, load.total("lateness").tolist())
        late_s = int(load.total("lateness_ns")) / 1e9
        histograms["lateness"].add_metric(labels, buckets, late_s)
    yield from (*counters.values(), *gauges.values(), *histograms.values())


def _add_by_outcome(family: Any, load: _Load, field: str, labels: list[str]) -> None:
    """What percentiles are made of always, so that its rate is known from the first; others as they
    come.
    """
    counts, sums_ns = load.total(field), load.total(f"{field}_ns")
    for index, outcome in enumerate(OUTCOMES):
        if outcome in IN_PERCENTILES or counts[index].any():
            buckets = cumulated(load.bounds_s, counts[index].tolist())
            family.add_metric([*labels, outcome], buckets, int(sums_ns[index]) / 1e9)


def _resource_families(run: str, folder: ResultsFolder) -> Iterator[Family]:
    """The last sample; its counters are those of the server that is watched."""
    sample = last_sample(folder.resources)
    found: dict[Metric, Any] = {}
    for metric, labels, value in families(sample, run) if sample else ():
        if metric not in found:
            found[metric] = family_of(metric)
        found[metric].add_metric(labels, value)
    yield from found.values()


def _readable(folder: ResultsFolder) -> list[Trial]:
    try:
        return folder.read_trials()
    except InfersweepError:
        return []


def serve(folder: ResultsFolder, host: str, port: int) -> None:
    """Answer scrapes until SIGTERM, and one more after it where somebody scrapes.

    Raises:
        MachineError: the port is in use.
    """
    collector = RunCollector(folder)
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    told = _told_to_stop()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server, _ = start_http_server(port, host, registry)
    except OSError as error:
        raise MachineError(
            f"the run cannot be published at {host}:{port}: {error.strerror}",
            hint="Choose another --metrics-port, or stop what listens there.",
        ) from None
    collector.scrapes.clear()
    told.recv(1)
    _await_last_scrape(collector)
    server.shutdown()


def _told_to_stop() -> socket.socket:
    """Readable after a SIGTERM, however many follow.

    When a parent is killed, each of its threads sends one as it ends. A handler that sets an event
    would wait for ever on itself when it is interrupted by the next; Python's own writes a byte.
    """
    reader, writer = socket.socketpair()
    writer.setblocking(False)
    signal.set_wakeup_fd(writer.detach(), warn_on_full_buffer=False)
    signal.signal(signal.SIGTERM, lambda *_: None)
    return reader


def _await_last_scrape(collector: RunCollector) -> None:
    """Return at once when nobody scrapes; Prometheus's longest usual interval is the limit."""
    asked = time.monotonic()
    recent = [at for at in collector.scrapes if asked - at < LAST_SCRAPE_LIMIT_S]
    while recent and collector.scrapes[-1] <= asked:
        if time.monotonic() - asked > LAST_SCRAPE_LIMIT_S:
            return
        time.sleep(0.05)
    if recent:
        # The answer to that scrape is still on its way.
        time.sleep(0.2)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m loadtest.observing.exporter")
    parser.add_argument("results", type=Path)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    asked = parser.parse_args()
    os.nice(_LOW_PRIORITY)
    try:
        serve(ResultsFolder(asked.results), asked.host, asked.port)
    except InfersweepError as error:
        print(error, file=sys.stderr)  # noqa: T201  (the exporter's log)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
