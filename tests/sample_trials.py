"""Made-up trials of known content, for tests of what is derived from them."""

from __future__ import annotations

from collections.abc import Sequence

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
from loadtest.trial import TrialOutput

MS = 1_000_000
SECOND = 1_000_000_000


def settings(**changes: object) -> Settings:
    values: dict[str, object] = {
        "model": "tiny",
        "backends": ("triton", "fastapi"),
        "concurrency": (1, 4),
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


def output(latencies_ns: Sequence[int], *, users: int = 1, **changes: object) -> TrialOutput:
    """A valid window of two seconds with the given latencies, as the generator reports it."""
    recorder = Recorder()
    for latency in latencies_ns:
        recorder.record(0, 0, latency, "ok")
    measured = recorder.measure(0, 2 * SECOND)
    values = {
        "window_s": 2.0,
        "warmup_s": 0.5,
        "warmup_requests": 9,
        **vars(measured),
        "mean_in_flight": float(users),
        "client_cpu_s": 0.2,
        "server_cpu_s": 1.9,
        "server_rss_bytes": 10**8,
        "lost_server_pids": (),
    }
    return TrialOutput.model_validate({**values, **changes})


def outcomes(**counts: int) -> dict[str, int]:
    return {name: counts.get(name, 0) for name in OUTCOMES}


def trial(
    backend: str,
    concurrency: int,
    repeat: int,
    latencies_ns: Sequence[int],
    **changes: object,
) -> tuple[Trial, Histograms]:
    """A VALID trial and its histograms."""
    made = output(latencies_ns)
    name = f"{backend}-c{concurrency}-r{repeat}"
    values = {
        "id": name,
        "backend": backend,
        "scenario": "closed",
        "concurrency": concurrency,
        "repeat": repeat,
        "started": "2026-05-01T12:00:00+00:00",
        "window_s": 2.0,
        "warmup_s": 0.5,
        "warmup_requests": 9,
        "sent": made.sent,
        "outcomes": made.outcomes,
        "rows_per_request": 1,
        "mean_in_flight": float(concurrency),
        "client_cpu": 0.1,
        "verdict": "VALID",
    }
    histograms = Histograms(
        trial=name, response_time=made.response_time, service_time=made.service_time
    )
    return Trial.model_validate({**values, **changes}), histograms
