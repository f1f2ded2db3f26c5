"""Results folders of made-up servers, each a queue with one place: a sweep, and searches.

Everything is simulated but the code under test: rates, queues and starts that differ come out as
they would from a server whose service times are log-normal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from pathlib import Path

import numpy as np
import numpy.typing as npt

from loadtest.explained import PhaseTotal, ServerTimings
from loadtest.folder import ResultsFolder
from loadtest.objective import Evidence
from loadtest.recorder import Recorder
from loadtest.resources.record import Energy, InterfaceUse, RailUse, ResourceUse, RoleUse
from loadtest.results import Histograms, Trial
from loadtest.slo.bracket import MANY, ONE
from loadtest.slo.state import CLOSED, State, evidence_of, state_of
from loadtest.trials import PlannedTrial
from tests import sample_trials as made

SECOND = made.SECOND
Nanoseconds = npt.NDArray[np.int64]
WIRE_MS = 0.6
OBJECTIVE = "p99<=15ms"


@dataclass(frozen=True)
class Served:
    """A server: service time in ms, its spread, a start's own pace, and its memory."""

    service_ms: float
    spread: float
    start_spread: float
    memory_bytes: int
    joules: float | None = None

    def services(self, count: int, rng: np.random.Generator, pace: float) -> Nanoseconds:
        times = self.service_ms * pace * rng.lognormal(0, self.spread, count)
        # Now and then something else runs on the machine.
        slow = (rng.random(count) < 0.0005) * rng.exponential(2 * self.service_ms, count)
        return np.asarray((times + slow) * made.MS, np.int64)


SERVERS: Mapping[str, Served] = {
    "triton": Served(1.92, 0.07, 0.010, 498_000_000, 0.031),
    "onnxruntime": Served(1.58, 0.05, 0.008, 312_000_000, 0.026),
    "fastapi": Served(2.07, 0.12, 0.012, 268_000_000, 0.036),
}


def sweep(
    path: Path,
    *,
    repeats: int = 3,
    levels: Sequence[float] = (1, 2, 4, 8),
    window_s: float = 6.0,
    servers: Mapping[str, Served] = SERVERS,
    left_out: int = 0,
    trial: Mapping[str, object] | None = None,
    **settings: object,
) -> ResultsFolder:
    """Closed loops. The last ``left_out`` windows are missing, as after a kill."""
    asked = {"backends": tuple(servers), "levels": levels, "repeats": repeats, "slo_ms": 15.0}
    folder = _opened(path, {**asked, "duration_s": window_s, **settings}, servers)
    planned = [
        PlannedTrial(label, level, repeat)
        for repeat in range(1, repeats + 1)
        for label in servers
        for level in levels
    ]
    for one in planned[: len(planned) - left_out]:
        rng = _rng(one.backend, one.repeat, round(one.level))
        server = servers[one.backend]
        due, latency = closed_loop(server, int(one.level), window_s, rng, _pace(server, one))
        folder.append_trial(*_window(one, server, due, latency, window_s, trial or {}))
    return folder


def search(
    path: Path,
    *,
    repeats: int = 3,
    servers: Mapping[str, Served] = SERVERS,
    objectives: Sequence[str] = (OBJECTIVE,),
    most: int | None = None,
    **settings: object,
) -> ResultsFolder:
    """Searches for the highest rate; ``most`` ends them after so many probes in all."""
    asked: dict[str, object] = {
        "backends": tuple(servers),
        "scenario": "server",
        "level_name": "requests/s",
        "levels": (),
        "repeats": repeats,
        "objectives": objectives,
        "slo_ms": 15.0,
        "duration_s": 10.0,
        "limit_s": 60.0,
    }
    folder = _opened(path, {**asked, **settings}, servers)
    seen: list[Evidence] = []
    for repeat in range(1, repeats + 1):
        for label, server in servers.items():
            for kept in _search(folder, label, repeat, server, seen):
                seen.append(evidence_of(*kept))
                folder.append_trial(*kept)
                if most is not None and len(seen) >= most:
                    return folder
    return folder


def _search(
    folder: ResultsFolder, label: str, repeat: int, server: Served, seen: list[Evidence]
) -> list[tuple[Trial, Histograms]]:
    settings = folder.read_manifest().settings
    own, kept = list(seen), []

    def state() -> State:
        return state_of(settings, own, label, repeat)

    def keep(one: tuple[Trial, Histograms]) -> None:
        kept.append(one)
        own.append(evidence_of(*one))

    for users in (ONE, MANY) if repeat == 1 else ():
        planned = PlannedTrial(label, users, 1, 0)
        rng = _rng(label, 1, round(users))
        due, latency = closed_loop(server, int(users), 3.0, rng, _pace(server, planned))
        keep(_window(planned, server, due, latency, 3.0, {"scenario": CLOSED}))
    while (found := state()).search.next_rps is not None:
        rate_rps, number = found.search.next_rps, len(found.probes) + 1
        length_s = found.windows.length_s(rate_rps, found.objectives.needed)
        planned = PlannedTrial(label, rate_rps, repeat, number)
        rng = _rng(label, repeat, 100 + number)
        due, latency = open_loop(server, rate_rps, length_s, rng, _pace(server, planned))
        changes: dict[str, object] = {"scenario": "server", "probe": number}
        over = np.flatnonzero(latency > found.objectives.percentiles[0].limit_ns)
        if len(over) > 0.02 * len(due):
            last = int(over[int(0.02 * len(due))])
            length_s = max(1.0, float(due[last]) / SECOND)
            due, latency = due[: last + 1], latency[: last + 1]
            changes["cut"] = f"{len(over)} requests took longer than 15 ms"
        keep(_window(planned, server, due, latency, length_s, changes))
    return kept


def closed_loop(
    server: Served, users: int, window_s: float, rng: np.random.Generator, pace: float
) -> tuple[Nanoseconds, Nanoseconds]:
    """Due times and latencies: each user sends its next request when it has its answer."""
    count = int(window_s * 1200 / server.service_ms)
    wire_ns = round(WIRE_MS * made.MS)
    ready = [place * 1_000 for place in range(users)]
    due, latency, free = [], [], 0
    for service in server.services(count, rng, pace).tolist():
        start = heappop(ready)
        free = max(free, start + wire_ns) + service
        due.append(start)
        latency.append(free - start)
        heappush(ready, free)
    inside = np.array(due) < window_s * SECOND
    return np.array(due, np.int64)[inside], np.array(latency, np.int64)[inside]


def open_loop(
    server: Served, rate_rps: float, window_s: float, rng: np.random.Generator, pace: float
) -> tuple[Nanoseconds, Nanoseconds]:
    """Due times of Poisson arrivals, and latencies in a queue of one place (Lindley)."""
    count = rng.poisson(rate_rps * window_s)
    due = np.sort(rng.uniform(0, window_s * SECOND, count)).astype(np.int64)
    services = server.services(count, rng, pace)
    before = np.cumsum(services) - services
    done = before + services + np.maximum.accumulate(due - before)
    return due, done - due


def _opened(
    path: Path, settings: Mapping[str, object], servers: Mapping[str, Served]
) -> ResultsFolder:
    folder = ResultsFolder(path)
    asked = {"model": "face_detector", "server_cpus": (0, 1, 2), "client_cpus": (3,), **settings}
    folder.write_manifest(made.manifest(**asked))
    for label in servers:
        folder.write_backend(made.record(label, start_s=2.1, facts={"server": label}))
    return folder


def _pace(server: Served, one: PlannedTrial) -> float:
    """Starts differ; windows on one start do not."""
    return float(_rng(one.backend, one.repeat, 0).lognormal(0, server.start_spread))


def _rng(label: str, repeat: int, number: int) -> np.random.Generator:
    return np.random.default_rng([*label.encode(), repeat, number])


def _window(
    planned: PlannedTrial,
    server: Served,
    due: Nanoseconds,
    latency: Nanoseconds,
    window_s: float,
    changes: Mapping[str, object],
) -> tuple[Trial, Histograms]:
    recorder = Recorder(0, int(window_s * SECOND))
    recorder.add(made.requests(due.tolist(), latency.tolist(), late_ns=20_000))
    measured = recorder.finish()
    rate_rps = measured.outcomes["ok"] / window_s
    trial, _ = made.trial(planned.backend, planned.level, planned.repeat, [made.MS])
    values: dict[str, object] = {
        "id": planned.id,
        "window_s": window_s,
        "planned": len(due),
        "outcomes": measured.outcomes,
        "completed": measured.completed,
        "server_cpu": min(0.98, rate_rps * server.service_ms / 1e3),
        "server_rss_bytes": server.memory_bytes,
        "resources": _use(server, rate_rps, window_s),
        "ceiling_rps": 9_000.0,
    }
    requests = measured.outcomes["ok"]
    compute_ns = round(server.service_ms * 0.93 * made.MS * requests)
    waited_ns = max(int(latency.sum()) - round(server.service_ms * made.MS * requests), 0)
    values["server_timings"] = ServerTimings(
        told_by="the statistics extension",
        phases={
            "queue": PhaseTotal(count=requests, ns=waited_ns),
            "compute_input": PhaseTotal(count=requests, ns=requests * 21_000),
            "compute": PhaseTotal(count=requests, ns=compute_ns),
            "compute_output": PhaseTotal(count=requests, ns=requests * 9_000),
        },
        rows=requests,
        executions=requests,
    )
    values |= {"floor_ms": 0.05, "encode_ns": 14_000.0}
    histograms = Histograms(
        trial=planned.id,
        response_time=measured.response_time,
        service_time=measured.service_time,
        lateness=measured.lateness,
        first_byte=measured.first_byte,
    )
    return Trial.model_validate({**trial.model_dump(), **values, **changes}), histograms


def _use(server: Served, rate_rps: float, window_s: float) -> ResourceUse:
    role = RoleUse(
        cpu_cores=rate_rps * server.service_ms / 1e3,
        rss_peak_bytes=server.memory_bytes,
        pss_peak_bytes=round(server.memory_bytes * 0.86),
        voluntary_switches_per_s=8.0 * rate_rps,
        involuntary_switches_per_s=0.3 * rate_rps,
        processes_peak=2,
        threads_peak=19,
    )
    watts = 9.0 + (server.joules or 0.0) * rate_rps
    return ResourceUse(
        window_s=window_s,
        samples=round(window_s),
        roles={"server": role, "generator": role.model_copy(update={"cpu_cores": 0.11})},
        network={"lo": InterfaceUse(receive_bytes_per_s=9e5, transmit_bytes_per_s=9e5)},
        rails={"package-0": RailUse(watts=watts, joules=watts * window_s)},
        energy=Energy(
            rails=("package-0",),
            missing={},
            joules=watts * window_s,
            joules_per_inference=watts / rate_rps,
            idle_watts=9.0,
            net_joules_per_inference=(watts - 9.0) / rate_rps,
        ),
    )
