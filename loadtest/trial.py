"""What the runner tells the generator process about one trial, and what comes back."""

from __future__ import annotations

from pathlib import Path

from pydantic import BaseModel, ConfigDict


class TrialSpec(BaseModel):
    """One window of closed-loop load.

    Attributes:
        payloads: folder with prepared requests.
        warmup_s: least time before the window; it goes on until each user has had two replies.
        values_every: check the values of every n-th reply; 0 for never.
        server_pid: the server's first process, to read its CPU time; ``None`` for a remote one.
        output: where the generator writes its ``TrialOutput``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    url: str
    model: str
    payloads: Path
    concurrency: int
    warmup_s: float
    window_s: float
    timeout_s: float
    seed: int
    values_every: int
    server_pid: int | None
    output: Path


class TrialOutput(BaseModel):
    """What one generator process measured; times in seconds, histograms in nanoseconds."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    window_s: float
    warmup_s: float
    warmup_requests: int
    sent: int
    outcomes: dict[str, int]
    mean_in_flight: float
    response_time: tuple[dict[str, str], ...]
    service_time: tuple[dict[str, str], ...]
    client_cpu_s: float
    server_cpu_s: float | None
    server_rss_bytes: int | None
    lost_server_pids: tuple[int, ...]
