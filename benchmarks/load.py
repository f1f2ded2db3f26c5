"""The load engine against public tools and against the truth, in one run: ``make bench-load``.

Server on one CPU, generator on another; tools take turns, and medians of several turns count.
``--quick`` takes one short turn of each, ``--long`` runs the memory check for ten minutes.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import psutil
from hdrh.histogram import HdrHistogram

from benchmarks import rows
from benchmarks.peers import PEERS, PeerResult, Target, Unavailable
from benchmarks.rows import Row, at_least, at_most, unmeasured
from loadtest.analysis import samples_of
from loadtest.histogram import buckets, merge, new_histogram
from loadtest.payload import Payload, write_payloads
from loadtest.prepare import payloads_from
from loadtest.runner import Fleet, generate
from loadtest.trial import LevelOutput, TrialSpec
from serving.deployment import Placement, running
from serving.models.repository import Model
from serving.parity import reference_for
from serving.process import RunningProcess, free_port, wait_until
from serving.protocol import InferRequest, encode_response
from serving.readiness import get_status
from tests.sample_models import write_tiny

SERVER_CPU, CLIENT_CPU = 0, 1
USERS = (8, 32)
OURS = "infersweep"
OF_WRK, OF_PERF_ANALYZER, OF_STOCK = 0.9, 1.0, 1.8
LATE_LIMIT_MS = 0.5
SPEED_UP = 0.9
MEMORY_LIMIT_MB = 120.0
TRUTH_PERCENTILES = (0.5, 0.9, 0.95, 0.99)
TRUTHS: dict[str, tuple[str, ...]] = {
    "constant": ("--mean-ms", "25"),
    "lognormal": ("--mean-ms", "30", "--sigma", "0.5"),
    "bimodal": ("--mean-ms", "25", "--slow-ms", "120", "--slow-share", "0.05"),
    "stalls": ("--mean-ms", "20"),
}
"""Long enough for 1% to be more than the way through two kernels' queues and wake-ups, some 0.1 ms
on a virtual machine, which is in every client's time and not in the server's log."""


@dataclass(frozen=True)
class Bench:
    """Attributes: ``folder`` is scratch; ``turns`` of ``seconds`` each are taken per tool."""

    model: Model
    payload: Payload
    folder: Path
    turns: int
    seconds: float

    def target(self, url: str) -> Target:
        return Target(url, self.model.name, self.payload.body, self.payload.headers)

    def spec(
        self, url: str, scenario: str, level: float, seconds: float, *, null: bool = False
    ) -> TrialSpec:
        return TrialSpec(
            url=url,
            model=self.model.name,
            payloads=self.folder / "payloads",
            scenario=scenario,
            levels=(level,),
            duration_s=seconds,
            timeout_s=5.0,
            seed=1,
            # The null server answers zeros, which are right in shape only.
            values_every=0 if null else 20,
            server_pid=None,
            output=self.folder / "output.jsonl",
        )

    def ours(
        self,
        url: str,
        scenario: str,
        level: float,
        *,
        seconds: float = 0.0,
        processes: int = 1,
        null: bool = False,
    ) -> LevelOutput:
        spec = self.spec(url, scenario, level, seconds or self.seconds, null=null)
        cpus = (CLIENT_CPU,) if processes == 1 else (CLIENT_CPU, SERVER_CPU)
        (output,) = generate(spec, Fleet(cpus, processes), self.folder / "generator.log")
        return output

    @contextmanager
    def server(self, label: str) -> Iterator[str]:
        placement = Placement((SERVER_CPU,), 2)
        logs = self.folder / "logs"
        logs.mkdir(exist_ok=True)
        repository = self.folder / f"repository-{label}"
        with running(label, self.model, placement, repository=repository, logs=logs) as server:
            yield server.url


def result_of(output: LevelOutput, users: int) -> PeerResult:
    rate_rps = output.outcomes["ok"] / output.window_s
    service = merge(window["ok"] for window in output.service_time if "ok" in window)
    corrected = as_wrk_tells(service, users / rate_rps * 1e9)
    return PeerResult(
        rate_rps,
        corrected.get_value_at_percentile(50) / 1e6,
        corrected.get_value_at_percentile(99) / 1e6,
        output.planned - output.outcomes["ok"],
    )


def as_wrk_tells(service: HdrHistogram, interval_ns: float) -> HdrHistogram:
    """Wrk adds samples behind each slow one, one per expected interval (``stats_correct``); to be
    laid beside its percentiles, ours must be told the same way. Nowhere else is this done.
    """
    told = new_histogram()
    for value, count in zip(*(column.tolist() for column in buckets(service)), strict=True):
        told.record_value(value, count)
        missing = value - interval_ns
        while missing > interval_ns:
            told.record_value(int(missing), count)
            missing -= interval_ns
    return told


def against_peers(bench: Bench, label: str) -> list[Row]:
    """Closed loop at 8 and 32 users, every tool in turn."""
    found: dict[tuple[str, int], list[PeerResult]] = defaultdict(list)
    missing: dict[str, str] = {}
    with bench.server(label) as url:
        for turn in range(bench.turns):
            for users in USERS:
                for name in (OURS, *PEERS):
                    if name in missing:
                        continue
                    say(f"{label}, {users} users, turn {turn + 1}: {name}")
                    try:
                        result = (
                            result_of(bench.ours(url, "closed", users, null=label == "null"), users)
                            if name == OURS
                            else PEERS[name](bench.target(url), users, bench.seconds, CLIENT_CPU)
                        )
                    except Unavailable as error:
                        missing[name] = str(error)
                        continue
                    found[name, users].append(result)
    for (name, users), results in found.items():
        print(_line(label, name, users, results))
    return [row for users in USERS for row in _peer_rows(label, users, found, missing)]


def _line(label: str, name: str, users: int, results: Sequence[PeerResult]) -> str:
    rates = sorted(result.requests_per_s for result in results)
    p50, p99 = (
        np.median([getattr(r, field) or np.nan for r in results]) for field in ("p50_ms", "p99_ms")
    )
    errors = sum(result.errors for result in results)
    return (
        f"{label:12} {users:3} users  {name:20} {np.median(rates):10,.0f}/s "
        f"({rates[0]:,.0f} to {rates[-1]:,.0f})  p50 {p50:.3f} ms  p99 {p99:.3f} ms "
        f"({', '.join(f'{r.p99_ms:.3g}' for r in results if r.p99_ms)})  "
        f"errors {errors}"
    )


def _peer_rows(
    label: str,
    users: int,
    found: dict[tuple[str, int], list[PeerResult]],
    missing: dict[str, str],
) -> Iterator[Row]:
    ours = found[OURS, users]
    bounds = {
        "wrk": OF_WRK,
        "perf_analyzer": OF_PERF_ANALYZER,
        "locust FastHttpUser": OF_STOCK,
        "locust HttpUser": OF_STOCK,
        "k6": OF_PERF_ANALYZER,
        "hey": OF_PERF_ANALYZER,
    }
    for peer, bound in bounds.items():
        name = f"{label}, {users} users: requests/s / {peer}'s"
        if peer in missing:
            yield unmeasured(name, f">= {bound:g}", missing[peer])
            continue
        theirs = found[peer, users]
        ratios = [a.requests_per_s / b.requests_per_s for a, b in zip(ours, theirs, strict=True)]
        yield at_least(name, ratios, bound)
    if "wrk" in missing or label == "null":
        return
    # In a closed loop latency is users / rate on average; rates of two turns are never the same.
    for field, bound in (("p50_ms", 0.05), ("p99_ms", 0.10)):
        errors = [
            abs(getattr(a, field) * a.requests_per_s / getattr(b, field) / b.requests_per_s - 1)
            for a, b in zip(ours, found["wrk", users], strict=True)
        ]
        name = f"{label}, {users} users: {field[:3]} off wrk's at the same rate"
        yield at_most(name, errors, bound, "share")


def punctuality(bench: Bench) -> list[Row]:
    """Open loop at half of the ceiling: how late requests leave."""
    with bench.server("null") as url:
        ceiling = result_of(bench.ours(url, "closed", 32, null=True), 32).requests_per_s
        found = []
        for turn in range(bench.turns):
            say(f"open loop at {ceiling / 2:,.0f}/s, turn {turn + 1}")
            output = bench.ours(url, "constant", ceiling / 2, null=True)
            found.append(merge([output.lateness]).get_value_at_percentile(99) / 1e6)
    name = f"open loop at {ceiling / 2:,.0f}/s: 99% leave within"
    return [at_most(name, found, LATE_LIMIT_MS, "ms")]


def truth(bench: Bench) -> list[Row]:
    """Every percentile against the log of a server whose service times are known."""
    found = []
    for name, arguments in TRUTHS.items():
        worst = []
        for turn in range(2 * bench.turns - 1):
            say(f"truth: {name}, turn {turn + 1}")
            worst.append(_error_of(bench, name, arguments))
        # 1 is the bound itself: 1% of the truth, or 50 us where that is more.
        title = f"truth, {name}: largest error of p50 to p99 / max(1%, 50 us)"
        found.append(at_most(title, worst, 1.0))
    return found


def _error_of(bench: Bench, name: str, arguments: Sequence[str]) -> float:
    log = bench.folder / "truth.npy"
    with truth_server(bench, name, arguments, log) as (url, _):
        output = bench.ours(url, "server", 200.0, seconds=max(bench.seconds, 6.0))
    times = np.load(log)
    last = times[np.argsort(times[:, 0])][-output.outcomes["ok"] :]
    ordered = np.sort(last[:, 1] - last[:, 0]) / 1e6
    samples = samples_of(output.service_time)
    errors = []
    for quantile in TRUTH_PERCENTILES:
        got = samples.percentile(quantile)
        if got is not None:
            right = ordered[int(np.ceil(quantile * len(ordered))) - 1]
            errors.append(abs(got.value / 1e6 - right) / max(0.01 * right, 0.05))
    return max(errors)


@contextmanager
def truth_server(
    bench: Bench, name: str, arguments: Sequence[str], log: Path
) -> Iterator[tuple[str, int]]:
    """Address and process of the truth server, with the right answer, on the server's CPU."""
    wanted = InferRequest((), binary_default=True)
    body, length = encode_response("tiny", 1, wanted, [*bench.payload.expected.values()])
    (bench.folder / "reply").write_bytes(body)
    port = free_port()
    argv = [
        *(sys.executable, "-m", "benchmarks.truth_server", "--distribution", name, *arguments),
        *("--reply", str(bench.folder / "reply"), "--reply-header-length", str(length)),
        *("--log", str(log), "--port", str(port)),
    ]
    url = f"http://127.0.0.1:{port}"
    with RunningProcess(argv, cpus=(SERVER_CPU,), log=bench.folder / "truth.log") as process:
        ready = lambda: get_status(url, "/v2/health/ready") == 200  # noqa: E731
        wait_until(ready, deadline_s=30, process=process, what="the truth server")
        yield url, process.pid
        process.stop()


def two_processes(bench: Bench) -> list[Row]:
    """The rate of two generator processes over that of one, as far as the machine can show it.

    Where it cannot, what a request costs the generator: as long as two processes spend as much on
    one as a single process does, each brings its own CPU's share.
    """
    name = "null: requests/s of 2 processes / of 1"
    runs: dict[int, list[LevelOutput]] = {1: [], 2: []}
    with bench.server("null") as url:
        for _ in range(bench.turns):
            for processes, found in runs.items():
                say(f"{processes} processes")
                output = bench.ours(url, "closed", 32, processes=processes, null=True)
                found.append(output)
    rates = {n: [o.outcomes["ok"] / o.window_s for o in found] for n, found in runs.items()}
    costs = {n: [o.client_cpu_s / o.outcomes["ok"] for o in found] for n, found in runs.items()}
    ratios = [two / one for one, two in zip(rates[1], rates[2], strict=True)]
    dearer = [two / one for one, two in zip(costs[1], costs[2], strict=True)]
    cost = at_most("null: generator's CPU per request, 2 processes / 1", dearer, 1 / SPEED_UP)
    usable = len(os.sched_getaffinity(0))
    if usable < 4:
        seen = f"{float(np.median(ratios)):.2f}"
        why = f"{usable} CPUs: the second process shares the server's, and {seen} was seen"
        return [unmeasured(name, f">= {2 * SPEED_UP:g}", why), cost]
    return [at_least(name, ratios, 2 * SPEED_UP), cost]


def memory(bench: Bench, seconds: float) -> list[Row]:
    """Resident memory of the generator at full rate, and whether it grows."""
    seen: list[float] = []
    with bench.server("null") as url:
        spec = bench.spec(url, "closed", 32, seconds, null=True)
        fleet = Fleet((CLIENT_CPU,))
        say(f"memory at full rate for {seconds:.0f} s")
        watcher = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.load", "--watch", str(os.getpid())],
            stdout=subprocess.PIPE,
            text=True,
        )
        (output,) = generate(spec, fleet, bench.folder / "generator.log")
        watcher.send_signal(signal.SIGTERM)
        told, _ = watcher.communicate()
    seen = [float(line) for line in told.split()]
    settled = seen[len(seen) // 4 :]
    growth = max(settled) / settled[0]
    rate = output.outcomes["ok"] / output.window_s
    return [
        at_most(f"generator's memory at {rate:,.0f}/s", [max(seen)], MEMORY_LIMIT_MB, "MB"),
        at_most(f"its growth after the first quarter of {seconds:.0f} s", [growth], 1.05),
    ]


def watch(parent: int) -> None:
    """Print the generator's resident megabytes once a second, until told to stop."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        for process in psutil.Process(parent).children():
            if "locust" in process.cmdline():
                print(process.memory_info().rss / 1e6, flush=True)
        time.sleep(1.0)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--only", choices=("peers", "punctuality", "truth", "processes", "memory"))
    parser.add_argument("--watch", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.watch:
        watch(asked.watch)
    os.sched_setaffinity(0, {SERVER_CPU, CLIENT_CPU})
    with tempfile.TemporaryDirectory(prefix="infersweep-bench-") as name:
        folder = Path(name)
        model = write_tiny(folder / "models")
        payload = payloads_from(model, reference_for(model))[0]
        write_payloads(folder / "payloads", [payload])
        turns, seconds = (1, 2.0) if asked.quick else (3, 4.0)
        bench = Bench(model, payload, folder, turns, seconds)
        memory_s = 600.0 if asked.long else 20.0 if asked.quick else 60.0
        parts = {
            "peers": lambda: [
                row for label in ("null", "onnxruntime") for row in against_peers(bench, label)
            ],
            "punctuality": lambda: punctuality(bench),
            "truth": lambda: truth(bench),
            "processes": lambda: two_processes(bench),
            "memory": lambda: memory(bench, memory_s),
        }
        chosen = [asked.only] if asked.only else list(parts)
        rows.write("load", [row for part in chosen for row in parts[part]()])


if __name__ == "__main__":
    main()
