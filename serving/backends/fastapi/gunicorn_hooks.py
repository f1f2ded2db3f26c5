"""gunicorn's configuration: its arbiter serves the metrics of all workers.

Used as ``gunicorn --config python:serving.backends.fastapi.gunicorn_hooks``. All is told by the
environment, see ``Settings``; without a port for metrics, nothing is done here.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from serving.backends.fastapi.settings import Settings
from serving.errors import InfersweepError, UsageError

FOLDER_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"


def on_starting(server: Any) -> None:
    """In the arbiter, before anything else: what cannot work ends it with one line."""
    server.exporter = server.metrics = None
    try:
        settings = Settings.from_environment()
        if settings.metrics_port is not None:
            _prepare(server, settings.metrics_host, settings.metrics_port)
    except InfersweepError as error:
        print(error, file=sys.stderr)  # noqa: T201
        sys.exit(error.exit_code)


def when_ready(server: Any) -> None:
    """Before the first worker."""
    if server.exporter:
        server.exporter.start(server.metrics)


def pre_fork(server: Any, _worker: Any) -> None:
    if server.metrics:
        server.metrics.starting()


def post_fork(server: Any, _worker: Any) -> None:
    """In the worker."""
    if server.exporter:
        server.exporter.leave()


def child_exit(server: Any, worker: Any) -> None:
    """In the arbiter, which has struck the worker off already."""
    if server.metrics:
        missing = len(server.WORKERS) < server.num_workers
        server.metrics.ended(worker.pid, missing=missing)


def on_exit(server: Any) -> None:
    if server.exporter:
        server.exporter.stop()
        server.metrics.remove()


def _prepare(server: Any, host: str, port: int) -> None:
    # prometheus_client reads the environment when it is imported, and is not needed without a port.
    from serving.backends.fastapi.arbiter import ArbiterMetrics  # noqa: PLC0415
    from serving.backends.fastapi.exporter import Exporter  # noqa: PLC0415

    folder = os.environ.get(FOLDER_VARIABLE)
    if not folder:
        raise UsageError(
            f"there is a port for metrics, but no {FOLDER_VARIABLE}",
            hint="Name a folder for this server alone; it is emptied at the start.",
        )
    # The port first: whoever has it may have the folder as well.
    server.exporter = Exporter(host, port)
    server.metrics = ArbiterMetrics(Path(folder), workers=lambda: list(server.WORKERS))
