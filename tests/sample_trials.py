"""Made-up trials of known content, for tests of what is derived from them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import numpy as np

from loadtest.engine.base import OUTCOME, RECORD, Records
from loadtest.recorder import Recorder
from loadtest.results import (
    OUTCOMES,
    BackendRecord,
    Histograms,
    Machine,
    Manifest,
    Parity,
    Settings,
    Trial,
    Wire,
)
from loadtest.trial import LevelOutput

STARTED_UNIX_S = datetime.fromisoformat("2026-05-01T12:00:00+00:00").timestamp()
MS = 1_000_000
SECOND = 1_000_000_000


def settings(**changes: object) -> Settings:
    values: dict[str, object] = {
        "model": "tiny",
        "backends": ("triton", "fastapi"),
        "levels": (1, 4),
        "duration_s": 2.0,
        "repeats": 3,
        "timeout_s": 10.0,
        "seed": 1,
        "server_cpus": (0,),
        "client_cpus": (1,),
    }
    return Settings.model_validate({**values, **changes})


def manifest(**changes: object) -> Manifest:
    return Manifest(
        created="2026-05-01T12:00:00+00:00",
        command="infersweep compare --model tiny",
        infersweep_version="0.1.0",
        commit=None,
        machine=Machine(
            hostname="host",
            os="Linux",
            python="3.11",
            cpu_model="A processor",
            usable_cpus=2,
            cpu_source="affinity",
            memory_bytes=8 * 10**9,
        ),
        versions={"onnxruntime": "1.31"},
        settings=settings(**changes),
        model_version=1,
        model_sha256="0" * 64,
        wire=Wire(request_bytes=100),
    )


def record(label: str, **changes: object) -> BackendRecord:
    parity = Parity(passed=True, rows=16, largest_difference=1e-6, tolerance="1e-4")
    values = {"label": label, "facts": {"server": "a <b>server</b>"}, "parity": parity}
    return BackendRecord.model_validate({**values, "start_s": 1.0, **changes})


def requests(
    due_ns: Sequence[int],
    latencies_ns: Sequence[int],
    *,
    late_ns: int = 0,
    outcome: str = "ok",
    query: Sequence[int] | None = None,
) -> Records:
    """Records of requests that left ``late_ns`` after they were due."""
    records = np.zeros(len(due_ns), RECORD)
    records["due"] = due_ns
    records["sent"] = records["due"] + late_ns
    records["done"] = records["due"] + np.array(latencies_ns, np.int64)
    records["first_byte"] = records["done"]
    records["outcome"] = OUTCOME[outcome]
    records["query"] = query or range(len(due_ns))
    return records


def spread(count: int, length_ns: int = 2 * SECOND) -> list[int]:
    """Moments at equal distances over a window."""
    return [length_ns * i // count for i in range(count)]


def output(
    latencies_ns: Sequence[int], *, window_s: float = 2.0, users: int = 1, **changes: object
) -> LevelOutput:
    """A valid window with the given latencies, as the generator reports it."""
    length_ns = int(window_s * SECOND)
    recorder = Recorder(0, length_ns)
    recorder.add(requests(spread(len(latencies_ns), length_ns), latencies_ns))
    measured = vars(recorder.finish())
    del measured["in_flight_ns"]
    values = {
        "level": users,
        "window_started_unix_s": STARTED_UNIX_S,
        "window_s": window_s,
        "warmup_s": 0.5,
        "warmup_requests": 9,
        "settled": True,
        **measured,
        "mean_in_flight": float(users),
        "client_cpu_s": 0.1 * window_s,
        "server_cpu_s": 0.95 * window_s,
        "server_rss_bytes": 10**8,
        "lost_server_pids": (),
        "lost": 0,
    }
    return LevelOutput.model_validate({**values, **changes})


def outcomes(**counts: int) -> dict[str, int]:
    return {name: counts.get(name, 0) for name in OUTCOMES}


def trial(
    backend: str,
    level: float,
    repeat: int,
    latencies_ns: Sequence[int],
    **changes: object,
) -> tuple[Trial, Histograms]:
    """A VALID trial and its histograms."""
    made = output(latencies_ns)
    name = f"{backend}-l{level:g}-r{repeat}"
    values = {
        "id": name,
        "backend": backend,
        "scenario": "closed",
        "level": level,
        "repeat": repeat,
        "started": "2026-05-01T12:00:00+00:00",
        "window_started_unix_s": STARTED_UNIX_S,
        "window_s": 2.0,
        "warmup_s": 0.5,
        "warmup_requests": 9,
        "warmup_settled": True,
        "planned": made.planned,
        "outcomes": made.outcomes,
        "completed": made.completed,
        "rows_per_request": 1,
        "mean_in_flight": level,
        "late": 0,
        "lateness_p99_ms": 0.01,
        "client_cpu": 0.1,
        "verdict": "VALID",
    }
    histograms = Histograms(
        trial=name,
        response_time=made.response_time,
        service_time=made.service_time,
        lateness=made.lateness,
        first_byte=made.first_byte,
    )
    return Trial.model_validate({**values, **changes}), histograms
