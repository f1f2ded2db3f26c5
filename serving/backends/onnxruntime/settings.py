"""What the server is told when it starts: where, what, and how much of everything."""

from __future__ import annotations

import argparse
import dataclasses
import math
import os
from dataclasses import dataclass, field
from pathlib import Path

from serving.errors import UsageError

TOKEN_VARIABLE = "INFERSWEEP_TOKEN"


@dataclass(frozen=True)
class Limits:
    """Bounds that keep one client from taking the server down; printed at start.

    Attributes:
        json_bytes: of a body's JSON part, which takes some twenty times as much memory.
        decompressed_bytes: of a body that came compressed.
        elements: values of one tensor.
        queue: requests that may wait, per model version.
        stall_s: how long a request may take to arrive without a byte of progress.
        idle_s: how long a connection may be kept without a request.
        drain_s: how long requests in flight may take after SIGTERM.
    """

    head_bytes: int = 16_384
    headers: int = 100
    body_bytes: int = 256 << 20
    json_bytes: int = 64 << 20
    decompressed_bytes: int = 256 << 20
    elements: int = 1 << 28
    connections: int = 1024
    queue: int = 1024
    grpc_message_bytes: int = 256 << 20
    stall_s: int = 20
    idle_s: int = 300
    drain_s: int = 10

    def __str__(self) -> str:
        return ", ".join(f"{key} {value}" for key, value in dataclasses.asdict(self).items())


@dataclass(frozen=True)
class Settings:
    """Attributes: ``poll_s`` is how often the repository is looked through; 0 for never.

    ``slo_ms`` is the objective whose keeping the metrics count exactly. With ``reuse_port`` other
    processes of this user may listen at the same ports; ``metrics_port`` is this process's alone.
    """

    repository: Path
    models: tuple[str, ...]
    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int | None = None
    limits: Limits = field(default_factory=Limits)
    poll_s: float = 0.0
    certificate: Path | None = None
    key: Path | None = None
    token: str = field(default="", repr=False)
    slo_ms: float | None = None
    reuse_port: bool = False
    metrics_port: int | None = None

    @property
    def slo_ns(self) -> int | None:
        return None if self.slo_ms is None else round(self.slo_ms * 1e6)

    @property
    def local(self) -> bool:
        """Whether only this machine can reach the server."""
        return self.host in ("127.0.0.1", "::1", "localhost")


def parse(arguments: list[str] | None = None) -> Settings:
    """The settings that a command line states.

    The token comes from the environment, since a command line can be read by everybody.

    Raises:
        UsageError: TLS was asked for with half of what it needs, the token is empty, or the
            objective is no time.
    """
    parser = argparse.ArgumentParser(prog="python -m serving.backends.onnxruntime")
    parser.add_argument("--repository", type=Path, required=True)
    parser.add_argument("--model", dest="models", action="append", required=True, metavar="NAME")
    parser.add_argument("--host", default=Settings.host)
    parser.add_argument("--port", type=int, default=Settings.port)
    parser.add_argument("--grpc-port", type=int, help="also serve gRPC there")
    parser.add_argument("--poll", dest="poll_s", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--tls-certificate", dest="certificate", type=Path, metavar="FILE")
    parser.add_argument("--tls-key", dest="key", type=Path, metavar="FILE")
    parser.add_argument("--slo-ms", type=float, help="a response time objective to count by")
    parser.add_argument("--reuse-port", action="store_true", help="share the ports with replicas")
    parser.add_argument(
        "--metrics-port", type=int, help="also answer there, for this replica alone"
    )
    bounds = {limit.name: limit.default for limit in dataclasses.fields(Limits)}
    for name, default in bounds.items():
        flag = f"--{name.removesuffix('_bytes').removesuffix('_s').replace('_', '-')}-limit"
        parser.add_argument(flag, dest=name, type=int, default=default, metavar="N")
    asked = vars(parser.parse_args(arguments))
    limits = Limits(**{name: asked.pop(name) for name in bounds})
    if (asked["certificate"] is None) != (asked["key"] is None):
        raise UsageError(
            "TLS needs both --tls-certificate and --tls-key", hint="Give the one that is missing."
        )
    if asked["slo_ms"] is not None and not 0 < asked["slo_ms"] < math.inf:
        raise UsageError(f"--slo-ms {asked['slo_ms']} is no time", hint="Write for example 50.")
    asked["models"] = tuple(asked["models"])
    token = os.environ.get(TOKEN_VARIABLE)
    if token is not None and not token.strip():
        raise UsageError(
            f"{TOKEN_VARIABLE} is set and empty", hint="Unset it to serve everybody, or fill it."
        )
    return Settings(**asked, limits=limits, token=(token or "").strip())
