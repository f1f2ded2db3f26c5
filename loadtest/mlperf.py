"""The four MLPerf Inference scenarios, paced and timed by MLCommons' own LoadGen.

LoadGen (https://github.com/mlcommons/inference/tree/master/loadgen, read at 6.0.17) decides when
each query is due, keeps the times and judges the run; here is only what sends the requests, on
plain threads. It is one per process, and needs a process in which gevent has patched nothing.
"""

from __future__ import annotations

import importlib
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from serving.errors import LoadError, MachineError, UsageError

Column = npt.NDArray[np.int64]
SCENARIOS = ("single-stream", "multi-stream", "server", "offline")

# LoadGen makes a stream's queries beforehand, twice as many as this asks for: 300 MB for a minute.
# If they run out the run is invalid, but no exchange over HTTP takes half of this.
_FASTEST_QUERY_NS = 200_000


@dataclass(frozen=True, kw_only=True)
class LoadgenSettings:
    """What LoadGen is told.

    Attributes:
        scenario: one of ``SCENARIOS``.
        seconds: the least duration of a valid run. "server" is scheduled for this long and ends
            when all is answered; "offline" sends 1.1 * seconds * rate_rps samples at once.
        rate_rps: "server": mean of the Poisson arrivals. "offline": the rate to expect; a faster
            server makes the run shorter than ``seconds`` and so invalid. Unused by the streams.
        samples_per_query: "multi-stream" only.
        latency_bound_ms: what the 99th percentile must keep; only "server" has a bound.
        seed: 0 or more; the same seed is the same schedule and order of payloads.
        log_folder: gets LoadGen's ``mlperf_log_*`` files, in place of earlier ones.
        samples: number of different payloads.
    """

    scenario: str
    seconds: float
    rate_rps: float | None
    samples_per_query: int = 8
    latency_bound_ms: float
    seed: int
    log_folder: Path
    samples: int

    def __post_init__(self) -> None:
        if self.scenario not in SCENARIOS:
            hint = f"Choose one of {', '.join(SCENARIOS)}."
            raise UsageError(f"LoadGen has no {self.scenario!r}", hint=hint)
        if self.scenario in ("server", "offline") and not (self.rate_rps or 0) > 0:
            raise UsageError(f"LoadGen has no rate for {self.scenario}", hint="Give one above 0.")
        if self.samples < 1:
            raise UsageError("LoadGen has no payloads", hint="Give at least one.")


@dataclass(frozen=True)
class Summary:
    """What LoadGen's summary states.

    Attributes:
        result_valid: its verdict, which knows nothing of wrong answers.
        checks: what the verdict is made of, such as "Early stopping".
        percentiles_ms: latency by name, such as "p99.9". Of queries; in "offline", of samples.
        rate_rps: completed samples per second; ``None`` where the summary states none.
    """

    result_valid: bool
    checks: dict[str, bool]
    percentiles_ms: dict[str, float]
    rate_rps: float | None


@dataclass(frozen=True)
class LoadgenResult(Summary):
    """One run. Arrays with one value per sample are in the order in which LoadGen issued them.

    Attributes:
        completed: samples answered; LoadGen times a failed one like any other.
        failed: of these, those whose exchange returned False or raised.
        first_error: the first exception that an exchange raised; "" for none.
        latencies_ns: one per query, from due to answered, by LoadGen's clock. "offline" has a
            single query: there, as in the summary, one per sample. In "multi-stream" by the latest
            sample; LoadGen's percentiles go by the last it heard of, at times some us earlier.
        scheduled_ns: per sample, when it was due; Unix time.
        issue_delay_ns: per sample, from due until LoadGen handed it over, by LoadGen's clock.
        send_delay_ns: until the exchange began, by ours: with the waits for GIL and connection.
        right: per sample, whether its answer was right.
        summary: the text of the summary.
    """

    completed: int
    failed: int
    first_error: str
    latencies_ns: Column
    scheduled_ns: Column
    issue_delay_ns: Column
    send_delay_ns: Column
    right: npt.NDArray[np.bool_]
    summary: str


def run_loadgen(
    settings: LoadgenSettings, exchange: Callable[[int], bool], *, connections: int
) -> LoadgenResult:
    """Run one scenario to its end.

    Args:
        settings: what to run.
        exchange: sends one payload, waits, and says whether the answer was right. Called on
            ``connections`` threads, each with its own connection. It must have a time limit.
        connections: most samples in flight; the others wait, and LoadGen counts the wait.

    Raises:
        MachineError: LoadGen is not installed.
        LoadError: it wrote no summary.
    """
    if not 1 <= connections <= 1000:  # LoadGen's log has room for 1024 threads.
        raise UsageError(f"LoadGen has no {connections} connections", hint="Choose 1 to 1000.")
    lg = _import_loadgen()
    told, logs = _test_settings(lg, settings), lg.LogSettings()
    logs.log_output.outdir = str(settings.log_folder)
    # Of LoadGen's logs only the trace has each sample's times. A thread of its own writes it.
    logs.enable_trace = True
    settings.log_folder.mkdir(parents=True, exist_ok=True)
    for old in settings.log_folder.glob("mlperf_log_*"):
        old.unlink()
    library = lg.ConstructQSL(settings.samples, settings.samples, _nothing, _nothing)
    senders = _Senders(lg, exchange, connections)
    system = lg.ConstructFastSUT(senders.issue, _nothing)
    ended = threading.Event()

    def drive() -> None:
        try:
            # The audit file is named, as else an "audit.config" in the working folder would win.
            lg.StartTestWithLogSettings(system, library, told, logs, "")
        finally:
            senders.close()
            lg.DestroyFastSUT(system)
            lg.DestroyQSL(library)
            ended.set()

    # LoadGen calls back on the thread that started it. An exception there, and Ctrl-C raises one
    # on the main thread, would unwind its C++ code below threads that still use its memory.
    driver = threading.Thread(target=drive)
    try:
        driver.start()
        ended.wait()  # Not join(): in Python 3.11, once interrupted, it takes the thread for ended.
    except BaseException:
        senders.abandoned = True
        if driver.ident:
            ended.wait()
        raise
    return _collect(settings, senders)


def parse_summary(text: str) -> Summary:
    """Read ``mlperf_log_summary.txt``; without a verdict in it, it raises ``LoadError``."""
    verdict = re.search(r"^Result is : (VALID|INVALID)$", text, re.MULTILINE)
    if verdict is None:
        raise LoadError("LoadGen's summary has no verdict", hint=f"It begins with {text[:80]!r}.")
    checks = re.findall(r"^  (.+) satisfied ?: (Yes|NO)$", text, re.MULTILINE)
    latencies = re.findall(r"^([\d.]+) percentile latency \(ns\) *: (\d+)$", text, re.MULTILINE)
    rate = re.search(r"^(?:Completed samples|Samples) per second *: (\S+)$", text, re.MULTILINE)
    return Summary(
        result_valid=verdict[1] == "VALID",
        checks={name: answer == "Yes" for name, answer in checks},
        percentiles_ms={f"p{float(rank):g}": int(ns) / 1e6 for rank, ns in latencies},
        rate_rps=None if rate is None else float(rate[1]),
    )


def _import_loadgen() -> Any:
    try:
        return importlib.import_module("mlperf_loadgen")
    except ImportError as error:
        hint = "Install it with: pip install infersweep[loadgen]"
        raise MachineError(f"MLPerf LoadGen cannot be used: {error}", hint=hint) from None


def _nothing(*_: object) -> None:
    """What LoadGen may call to load, unload and flush: the payloads are ready all along."""


def _test_settings(lg: Any, settings: LoadgenSettings) -> Any:
    told = lg.TestSettings()
    told.scenario = getattr(lg.TestScenario, settings.scenario.title().replace("-", ""))
    told.mode = lg.TestMode.PerformanceOnly
    told.min_duration_ms = round(settings.seconds * 1000)
    # The time alone ends a run; whether it had enough queries, "Early stopping" says.
    told.min_query_count = 1
    told.single_stream_expected_latency_ns = _FASTEST_QUERY_NS
    told.multi_stream_expected_latency_ns = _FASTEST_QUERY_NS
    told.multi_stream_samples_per_query = settings.samples_per_query
    if settings.rate_rps is not None:
        told.server_target_qps = told.offline_expected_qps = settings.rate_rps
    told.server_target_latency_ns = round(settings.latency_bound_ms * 1e6)
    # With one seed for all, the gaps between queries and their payloads would come from the same
    # random numbers, and large gaps go with certain payloads.
    seeds = (3 * settings.seed + part for part in range(3))
    told.qsl_rng_seed, told.sample_index_rng_seed, told.schedule_rng_seed = seeds
    return told


class _Senders:
    """Threads that take samples from LoadGen, exchange them, and tell LoadGen of the end."""

    def __init__(self, lg: Any, exchange: Callable[[int], bool], connections: int) -> None:
        self._complete, self._response = lg.QuerySamplesComplete, lg.QuerySampleResponse
        self._exchange = exchange
        self._waiting: SimpleQueue[tuple[int, int, int] | None] = SimpleQueue()
        self._issued = 0
        self.abandoned = False  # If set, nothing more is exchanged, and all left has failed.
        self.outcomes: list[tuple[int, int, bool]] = []
        self.first_error = ""
        self._pool = [threading.Thread(target=self._work, daemon=True) for _ in range(connections)]
        for thread in self._pool:
            thread.start()

    def issue(self, ids: Sequence[int], payloads: Sequence[int]) -> None:
        """What LoadGen calls when samples are due; it numbers them in the same order."""
        for number, sample in enumerate(zip(ids, payloads, strict=True), self._issued):
            self._waiting.put((number, *sample))
        self._issued += len(ids)

    def _work(self) -> None:
        while (sample := self._waiting.get()) is not None:
            number, sample_id, payload = sample
            sent_ns, right = time.time_ns(), False
            # A sample that is never completed would keep LoadGen waiting for ever.
            try:
                right = not self.abandoned and bool(self._exchange(payload))
            except BaseException as error:
                self.first_error = self.first_error or f"{type(error).__name__}: {error}"
            self._complete([self._response(sample_id, 0, 0)])
            self.outcomes.append((number, sent_ns, right))

    def close(self) -> None:
        for _ in self._pool:
            self._waiting.put(None)
        for thread in self._pool:
            thread.join()


def _collect(settings: LoadgenSettings, senders: _Senders) -> LoadgenResult:
    if not (file := settings.log_folder / "mlperf_log_summary.txt").is_file():
        raise LoadError(f"LoadGen left no {file}", hint="What it printed says why.")
    text = file.read_text()
    scheduled_ns, query, issue_delay_ns, latency_ns = _read_trace(settings.log_folder)
    if settings.scenario == "multi-stream":
        latency_ns = np.maximum.reduceat(latency_ns, np.flatnonzero(np.diff(query, prepend=-1)))
    outcomes = np.array(sorted(senders.outcomes), np.int64).reshape(-1, 3)
    return LoadgenResult(
        **vars(parse_summary(text)),
        completed=len(outcomes),
        failed=int((outcomes[:, 2] == 0).sum()),
        first_error=senders.first_error,
        latencies_ns=latency_ns,
        scheduled_ns=scheduled_ns,
        issue_delay_ns=issue_delay_ns,
        send_delay_ns=outcomes[:, 1] - scheduled_ns,
        right=outcomes[:, 2] != 0,
        summary=text,
    )


_SAMPLE = re.compile(
    rb'"ph":"b".*"ts":([\d.]+),.*"sample_seq":(\d+),"query_seq":(\d+),.*'
    rb'"issue_start_ns":(-?\d+),"complete_ns":(-?\d+)'
)
_ORIGIN = re.compile(rb'"ts":([\d.]+),$')


def _read_trace(folder: Path) -> tuple[Column, Column, Column, Column]:
    """Due time (Unix, ns), query number, issue delay and latency (ns) of each sample.

    The trace is Chrome's format, but no valid JSON. Its times are us to three decimals, from an
    origin given at its end in Unix time to 0.25 us: LoadGen's clock is the system's, time.time_ns.
    """
    rows: list[tuple[int, ...]] = []
    origin_ns = 0
    with (folder / "mlperf_log_trace.json").open("rb") as file:
        for line in file:
            if line.startswith(b'{"name":"Sample",') and (found := _SAMPLE.search(line)):
                due_us, sample, *rest = found.groups()
                rows.append((int(sample), round(float(due_us) * 1e3), *map(int, rest)))
            elif origin := _ORIGIN.match(line):
                origin_ns = round(float(origin[1]) * 1e3)
    _, due_ns, query, issue_delay_ns, latency_ns = np.array(sorted(rows), np.int64).T
    return due_ns + origin_ns, query, issue_delay_ns, latency_ns
