"""What a server costs and withstands: memory, a soak at full load, more than it can serve."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from benchmarks.cases import FEW, MANY, OURS, Case, alone, bare_loop, joined, queue_of
from benchmarks.load import Bench, say
from benchmarks.rows import Row, at_least, at_most
from benchmarks.turns import Plan, loaded
from loadtest.histogram import buckets, merge
from loadtest.payload import write_payloads
from loadtest.trial import LevelOutput
from serving.deployment import Server
from serving.models.repository import Model
from serving.process import RunningProcess

MEMORY_LIMIT_MB, GROWTH, GOODPUT = 60.0, 1.05, 0.9
OBJECTIVE_SERVICE_TIMES = 10
QUEUE = 4
"""Before a request stand the batch in service and the queue: with these, eight service times."""


def memory(plan: Plan, image: Model) -> Row:
    """Resident memory above the bare loop's, each after the same load; children count too.

    No request is joined, and answers are checked afterwards, since the check asks for batches: the
    working memory of larger batches is the session's own.
    """
    case = plan.case("memory", image, alone)
    with case.started(OURS) as server:
        say("memory: the server")
        served, ours = _after_load(case, server.url, _process_of(server), plan.seconds)
        case.require_right(server)
    with bare_loop(case) as (url, process):
        say("memory: the bare loop")
        looped, bare = _after_load(case, url, process, plan.seconds, least=served)
    name = f"{image.name}: memory above a bare process with the same session"
    row = at_most(name, [ours - bare], MEMORY_LIMIT_MB, "MB")
    told = f"{ours:.0f} MB after {served:.0f} requests, {bare:.0f} MB after {looped:.0f}"
    return replace(row, note=told)


def _after_load(
    case: Case, url: str, process: RunningProcess, seconds: float, least: float = 1.0
) -> tuple[float, float]:
    """Requests served, no fewer than ``least``, and the megabytes held after them."""
    served = 0.0
    while served < least:
        served += loaded(case.target(url), FEW, seconds).requests_per_s * seconds
    return served, process.rss_bytes() / 1e6


def soak(plan: Plan, tiny: Model) -> Row:
    """Whether memory grows at full load, once the first quarter has passed."""
    case = plan.case("soak", tiny, joined(MANY))
    with case.served(OURS) as server, _watched(_process_of(server)) as seen:
        say(f"memory at full load for {plan.soak_s:.0f} s")
        result = loaded(case.target(server.url), MANY, plan.soak_s)
    settled = seen[len(seen) // 4 :]
    name = f"{tiny.name}: memory's growth after the first quarter of {plan.soak_s:.0f} s"
    row = at_most(name, [max(settled) / settled[0]], GROWTH)
    return replace(row, note=f"at {result.requests_per_s:,.0f}/s, {max(seen):.0f} MB at most")


@contextmanager
def _watched(process: RunningProcess) -> Iterator[list[float]]:
    """Megabytes of the process and its children, once a second while the block runs."""
    seen: list[float] = []
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(1.0):
            seen.append(process.rss_bytes() / 1e6)

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield seen
    finally:
        ended.set()
        thread.join()


def _process_of(server: Server) -> RunningProcess:
    assert server.process is not None, "ours runs here"
    return server.process


def overload(plan: Plan, image: Model) -> Row:
    """Goodput at twice the capacity over the best, with a bounded queue.

    Arrivals are Poisson and the objective is ten service times, a service time being one over the
    closed loop's rate. The best is the largest of the closed loop, the capacity and twice that.
    """
    case = plan.case("overload", image, queue_of(QUEUE))
    write_payloads(case.folder / "payloads", [case.payload])
    # Longer, since some sixty requests a second are few.
    bench = Bench(case.model, case.payload, case.folder, plan.turns, 3 * plan.seconds)
    shares, refused = [], []
    with case.served(OURS) as server:
        for turn in range(plan.turns):
            say(f"overload, turn {turn + 1}")
            closed = bench.ours(server.url, "closed", FEW)
            capacity_rps = closed.outcomes["ok"] / closed.window_s
            limit_ns = OBJECTIVE_SERVICE_TIMES / capacity_rps * 1e9
            once = bench.ours(server.url, "server", capacity_rps)
            twice = bench.ours(server.url, "server", 2 * capacity_rps)
            best = max(goodput_rps(output, limit_ns) for output in (closed, once, twice))
            shares.append(goodput_rps(twice, limit_ns) / best)
            refused.append(twice.outcomes["server_fault_5xx"] / twice.planned)
    row = at_least(f"{image.name}: goodput at twice the capacity / the best", shares, GOODPUT)
    told = f"{min(refused):.0%} to {max(refused):.0%} refused at twice the capacity"
    return replace(row, note="; ".join(part for part in (row.note, told) if part))


def goodput_rps(output: LevelOutput, limit_ns: float) -> float:
    """Right answers within ``limit_ns`` of when they were due, per second."""
    return answered_within(output.response_time, limit_ns) / output.window_s


def answered_within(windows: Sequence[Mapping[str, str]], limit_ns: float) -> int:
    """Right answers that took at most ``limit_ns``, from histograms by outcome."""
    values, counts = buckets(merge(window["ok"] for window in windows if "ok" in window))
    return int(counts[values <= limit_ns].sum())
