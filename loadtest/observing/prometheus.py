"""A Prometheus of one's own: the one on PATH, else its container, watching what runs here."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loadtest.observing.ask import Prometheus
from loadtest.observing.configuration import render
from loadtest.targets import drop_stale, targets_folder
from serving.backends.triton.locate import docker_works
from serving.errors import MachineError, ServerError
from serving.process import RunningProcess, require_free_port, wait_until

IMAGE = "prom/prometheus:v3.13.1"
RETENTION = "100y"
"""Old runs have their own times, and Prometheus would delete what lies far behind its newest."""
_READY_WITHIN_S = 30.0
_STOP_GRACE_S = 10.0


@dataclass(frozen=True)
class Watching:
    """How to watch.

    Attributes:
        data: folder of the time series; kept, so that a later command goes on with it.
        rules: files of rules by name (``loadtest.observing.configuration.RULE_FILES``).
        scrape_interval_s: how often every target is asked; 1 or more.
    """

    data: Path
    rules: Mapping[str, str]
    port: int = 9090
    scrape_interval_s: float = 1.0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def watched(how: Watching) -> Iterator[RunningProcess]:
    """A Prometheus that is ready; it ends when the block is left.

    Raises:
        MachineError: there is none, its port is in use, or its folder cannot be written.
        ServerError: it did not become ready.
    """
    require_free_port(how.port)
    folder = how.data.absolute()
    targets = targets_folder().absolute()
    try:
        for made in (folder / "tsdb", folder / "rules", targets):
            made.mkdir(parents=True, exist_ok=True)
        drop_stale()
        for name, text in how.rules.items():
            (folder / "rules" / name).write_text(text, encoding="utf-8")
        config = folder / "prometheus.yml"
        config.write_text(
            render(how.scrape_interval_s, targets, folder / "rules"), encoding="utf-8"
        )
    except OSError as error:
        raise MachineError(
            f"{error.filename or folder} cannot be written: {error.strerror}",
            hint="Name another folder with --data.",
        ) from None
    argv = _command(how, config, targets)
    with RunningProcess(argv, log=folder / "prometheus.log") as process:
        wait_until(
            Prometheus(how.url).ready,
            deadline_s=_READY_WITHIN_S,
            process=process,
            what="Prometheus",
        )
        try:
            yield process
        finally:
            process.stop(_STOP_GRACE_S)


def require_alive(process: RunningProcess) -> None:
    """Raises ServerError when Prometheus has ended."""
    if not process.alive:
        raise ServerError(
            f"Prometheus {process.ended()}", hint=f"Its log ends with:\n{process.log_tail()}"
        )


def _command(how: Watching, config: Path, targets: Path) -> Sequence[str]:
    own = (
        f"--config.file={config}",
        f"--storage.tsdb.path={config.parent / 'tsdb'}",
        f"--storage.tsdb.retention.time={RETENTION}",
        f"--web.listen-address=127.0.0.1:{how.port}",
    )
    program = shutil.which("prometheus")
    if program is not None:
        return (program, *own)
    if not docker_works():
        raise MachineError(
            "there is no Prometheus on PATH and no Docker",
            hint="Install it (Debian: apt-get install prometheus). Sweeps run without it, and a "
            "finished run can be loaded later with `infersweep observe RESULTS`.",
        )
    mounts = [f"{config.parent}:{config.parent}", f"{targets}:{targets}:ro"]
    return (
        *("docker", "run", "--rm", "--network=host", f"--user={os.getuid()}:{os.getgid()}"),
        *(f"--volume={mount}" for mount in mounts),
        *(IMAGE, *own),
    )
