"""The generator process of ``--driver loadgen``: one scenario, paced by MLPerf's own LoadGen.

Run by ``loadtest.runner`` as ``python -m loadtest.loadgen SPEC``. What LoadGen recorded becomes the
same records that our engines write, so histograms, bounds and verdicts are the same for both.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import numpy as np

from loadtest.engine.base import OUTCOME, RECORD, Records, Target
from loadtest.engine.callers import HttpCaller
from loadtest.mlperf import LoadgenResult, LoadgenSettings, run_loadgen
from loadtest.recorder import Recorder
from loadtest.scenarios import ClosedLoop, Load
from loadtest.trial import GeneratorFault, LevelOutput, TrialSpec, unix_s
from loadtest.warmup import LIMIT_S, Warmth
from serving.errors import InfersweepError
from serving.process import own_cpu_time_s

_NS = 1e9
_MOST_CONNECTIONS = 256
"""Each is a thread of Python; more of them only wait for one another."""


class Exchange(threading.local):
    """One connection per thread that calls it."""

    def __init__(self, target: Target, ca_file: Path | None) -> None:
        self._caller = HttpCaller(target, ca_file)

    def __call__(self, payload: int) -> bool:
        return self._caller.call(payload).outcome == "ok"


def run(spec: TrialSpec) -> LevelOutput:
    """Warm up by the usual rule, then hand over to LoadGen.

    Raises:
        InfersweepError: LoadGen is missing or gave no result.
    """
    target = spec.target()
    exchange = Exchange(target, spec.ca_file)
    warmth, warmup_s, settled = _warm_up(exchange, len(target.payloads))
    (level,) = spec.levels
    load = spec.load_of(level)
    connections = min(spec.connections, _MOST_CONNECTIONS)
    if isinstance(load, ClosedLoop):
        connections = min(connections, load.users)
    before_s, begun = own_cpu_time_s(), time.monotonic()
    result = run_loadgen(
        LoadgenSettings(
            scenario=spec.scenario,
            seconds=spec.duration_s,
            rate_rps=_rate_rps(load, level, spec.duration_s),
            samples_per_query=int(level) if spec.scenario == "multi-stream" else 1,
            latency_bound_ms=spec.timeout_s * 1e3,
            seed=spec.seed,
            log_folder=spec.output.with_suffix(".mlperf"),
            samples=len(target.payloads),
        ),
        exchange,
        connections=connections,
    )
    used_s, elapsed_s = own_cpu_time_s() - before_s, time.monotonic() - begun
    records = _records(result)
    length_s = _length_s(records, spec)
    start_ns = int(records["due"].min())
    recorder = Recorder(start_ns, start_ns + int(length_s * _NS), board=spec.board())
    recorder.add(records)
    measured = recorder.finish()
    return LevelOutput(
        level=level,
        window_started_unix_s=unix_s(start_ns),
        window_s=length_s,
        warmup_s=warmup_s,
        warmup_requests=warmth.requests,
        settled=settled,
        outcomes=measured.outcomes,
        completed=measured.completed,
        mean_in_flight=measured.in_flight_ns / (length_s * _NS),
        response_time=measured.response_time,
        service_time=measured.service_time,
        lateness=measured.lateness,
        first_byte=measured.first_byte,
        client_cpu_s=used_s * length_s / elapsed_s,
        server_cpu_s=None,
        server_rss_bytes=None,
        lost_server_pids=(),
        lost=0,
    )


def _rate_rps(load: Load, level: float, duration_s: float) -> float | None:
    """Of "server" the level. "offline" sends 1.1 times what this rate gives in the duration."""
    if isinstance(load, ClosedLoop):
        return None if load.requests is None else (load.requests + 0.5) / 1.1 / duration_s
    return level


def _warm_up(exchange: Exchange, payloads: int) -> tuple[Warmth, float, bool]:
    warmth, begun, settled, turn = Warmth(), time.monotonic(), False, 0
    while not settled and time.monotonic() - begun < LIMIT_S:
        sent_ns = time.monotonic_ns()
        exchange(turn % payloads)
        warmth.add(np.array([time.monotonic_ns() - sent_ns], np.int64))
        turn += 1
        settled = warmth.settled(1, time.monotonic() - begun)
    return warmth, time.monotonic() - begun, settled


def _records(result: LoadgenResult) -> Records:
    """One record per query, on our clock."""
    queries = len(result.latencies_ns)
    samples = len(result.scheduled_ns) // queries
    clock_ns = time.monotonic_ns() - time.time_ns()
    records = np.zeros(queries, RECORD)
    due = result.scheduled_ns.reshape(queries, samples)
    records["due"] = due[:, 0] + clock_ns
    sent = (due + result.send_delay_ns.reshape(queries, samples)).min(axis=1)
    records["sent"] = sent + clock_ns
    records["done"] = records["due"] + result.latencies_ns
    wrong = ~result.right.reshape(queries, samples).all(axis=1)
    records["outcome"][wrong] = OUTCOME["wrong_answer"]
    records["query"] = np.arange(queries)
    return records


def _length_s(records: Records, spec: TrialSpec) -> float:
    """Of a server run, what was asked for; else until the last answer."""
    ran_s = float(records["done"].max() - records["due"].min()) / _NS
    return spec.duration_s if spec.scenario == "server" else ran_s


def main() -> None:
    spec = TrialSpec.model_validate_json(Path(sys.argv[1]).read_text())
    try:
        told = run(spec).model_dump_json()
    except InfersweepError as error:
        told = GeneratorFault(fault=str(error)).model_dump_json()
    spec.output.write_text(told + "\n")


if __name__ == "__main__":
    main()
