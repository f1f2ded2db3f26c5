"""How fast fleets are simulated, and how near to queues that have been solved: ``make bench-plan``.

Ten million requests over a thousand replicas, in a process of its own on one CPU; the compiled loop
is compiled afresh, beside the time that counts. ``--quick`` takes a hundredth of the requests.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import get_args

import numpy as np

from benchmarks import rows
from benchmarks.rows import Row, at_most, stated
from loadtest.capacity import Balance, Fleet, Scheduler, ServiceSamples, simulate
from loadtest.capacity.formulas import batch_capacity_rps, md1_wait_s, mm1_wait_s, mmc_wait_s
from loadtest.capacity.service import Times

REQUESTS, REPLICAS = 10_000_000, 1_000
LIMIT_S, LIMIT_GB = 60.0, 2.0
ERROR_LIMIT = 0.01
LOAD = 0.7
"""Of the highest rate that the fleet can answer."""
SEED = 1


@dataclass(frozen=True)
class Run:
    """One simulation in a process of its own.

    Attributes:
        peak_gb: the most memory that the process had.
        compile_s: the first request of all, with nothing compiled.
        differing: requests whose start or replica was another when arrivals came in other chunks.
    """

    seconds: float
    peak_gb: float
    compile_s: float
    served: float
    mean_batch: float
    differing: int


def measured() -> ServiceSamples:
    """Made up: 1,000 times a size, of a server that gains by batching as GPUs do."""
    rng = np.random.default_rng(SEED)
    means_ns = {1: 2e6, 2: 2.4e6, 4: 3.2e6, 8: 5e6}
    return ServiceSamples.of(
        {size: mean * rng.lognormal(0, 0.2, 1_000) for size, mean in means_ns.items()}
    )


def fleet(balance: Balance) -> Fleet:
    scheduler = Scheduler(max_batch_size=8, max_queue_delay_ns=2_000_000, max_queue_size=64)
    return Fleet(measured(), scheduler, REPLICAS, balance)


def poisson(rate_rps: float, count: int) -> Times:
    times_ns = np.random.default_rng(SEED).exponential(1e9 / rate_rps, count)
    return np.cumsum(times_ns, out=times_ns).astype(np.int64)


def run_once(balance: Balance, requests: int) -> Run:
    """In the child: everything that a plan of this size needs, but for compiling."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
    simulated = fleet(balance)
    begun_s = time.perf_counter()
    simulate(simulated, np.zeros(1, np.int64), SEED)
    compiled_s = time.perf_counter()
    rate_rps = LOAD * REPLICAS * batch_capacity_rps(simulated.service, 8, 1)
    arrived_ns = poisson(rate_rps, requests)
    found = simulate(simulated, arrived_ns, SEED, progress=lambda came: tell(came, requests))
    ended_s = time.perf_counter()
    peak_gb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    few = slice(0, requests // 20)
    again = simulate(simulated, arrived_ns[few], SEED, chunk=12_345)
    once = simulate(simulated, arrived_ns[few], SEED)
    differing = (again.started_ns != once.started_ns) | (again.replica != once.replica)
    return Run(
        seconds=ended_s - compiled_s,
        peak_gb=peak_gb,
        compile_s=compiled_s - begun_s,
        served=found.count("ok") / requests,
        mean_batch=float(found.batch[found.ok].mean()),
        differing=int(differing.sum()),
    )


def tell(came: int, requests: int) -> None:
    print(f"\r{came / requests:4.0%} of {requests:,} requests", end="", file=sys.stderr, flush=True)


def in_a_child(balance: Balance, requests: int) -> Run:
    argv = [sys.executable, "-m", "benchmarks.planning", "--one", balance, str(requests)]
    with tempfile.TemporaryDirectory(prefix="infersweep-bench-") as cache:
        environment = os.environ | {"NUMBA_CACHE_DIR": cache}
        told = subprocess.run(argv, env=environment, stdout=subprocess.PIPE, check=True)
    print(file=sys.stderr)
    return Run(**json.loads(told.stdout))


def scale(requests: int) -> Iterator[Row]:
    for balance in get_args(Balance):
        found = in_a_child(balance, requests)
        title = f"{requests:,} requests, {REPLICAS:,} replicas, {balance}"
        yield at_most(f"{title}: time", [found.seconds], LIMIT_S, "s")
        yield at_most(f"{title}: memory at its most", [found.peak_gb], LIMIT_GB, "GB")
        yield at_most(f"{title}: differ by chunks", [found.differing], 0.0, "requests")
        yield stated(f"{title}: share served", [found.served])
        yield stated(f"{title}: requests in a batch, as a request sees it", [found.mean_batch], "")
        yield stated(f"{title}: compiling, once on a machine", [found.compile_s], "s")


def textbook(requests: int) -> Iterator[Row]:
    """Mean waits of queues of 1 ms a request."""
    middles = (np.arange(100_000) + 0.5) / 100_000
    exponential = ServiceSamples.of({1: -np.log(1 - middles) * 1e6})
    constant = ServiceSamples.of({1: [1_000_000]})
    cases = {
        "M/M/1": (exponential, 1, 600.0, mm1_wait_s(600.0, 1e-3)),
        "M/D/1": (constant, 1, 600.0, md1_wait_s(600.0, 1e-3)),
        "M/M/8": (exponential, 8, 6_400.0, mmc_wait_s(6_400.0, 1e-3, 8)),
    }
    for name, (service, servers, rate_rps, wanted_s) in cases.items():
        simulated = Fleet(service, Scheduler(instances=servers))
        found = simulate(simulated, poisson(rate_rps, requests), SEED)
        waited_s = float(found.waited_ns[requests // 10 :].mean()) / 1e9
        error = abs(waited_s / wanted_s - 1)
        yield at_most(f"{name}: mean wait off the textbook's", [error], ERROR_LIMIT, "share")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("BALANCE", "REQUESTS"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.one:
        balance, requests = asked.one
        print(json.dumps(asdict(run_once(balance, int(requests)))))
        return
    found = [*scale(REQUESTS // 100 if asked.quick else REQUESTS), *textbook(5_000_000)]
    versions = {name: version(name) for name in ("numba", "llvmlite", "numpy")}
    rows.write("planning", found, versions)


if __name__ == "__main__":
    main()
