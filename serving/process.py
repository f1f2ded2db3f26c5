"""Running server processes: start pinned, watch, read the log's end, stop without orphans."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from serving.errors import MachineError, ServerError
from serving.host import format_cpus

_EXEC_PINNED = Path(__file__).with_name("exec_pinned.py")
STOP_GRACE_S = 10.0


def free_port(host: str = "127.0.0.1") -> int:
    """A TCP port that nothing listens on at this moment."""
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def require_free_port(port: int, host: str = "127.0.0.1") -> int:
    """``port`` itself.

    Raises:
        MachineError: something listens there.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise MachineError(
                f"port {port} on {host} cannot be used: {error.strerror}",
                hint="Choose another with --port, or stop what listens there.",
            ) from None
    return port


def command_pinned(
    argv: Sequence[str], cpus: Sequence[int], orphaned: signal.Signals = signal.SIGTERM
) -> list[str]:
    """The command that runs ``argv`` on ``cpus`` and gets ``orphaned`` when this process ends."""
    shim = [sys.executable, "-I", "-S", str(_EXEC_PINNED)]
    return [*shim, str(os.getpid()), str(int(orphaned)), format_cpus(cpus), *argv]


@dataclass(frozen=True)
class StopReport:
    """How a server ended: its exit status, and whether it had to be killed."""

    returncode: int
    killed: bool


def family(pid: int) -> list[psutil.Process]:
    """The process and all its descendants that still run."""
    try:
        own = psutil.Process(pid)
        return [own, *own.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def family_rss_bytes(pid: int) -> int:
    """Resident memory of a process and its descendants; shared pages count once for each."""
    total = 0
    for process in family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += process.memory_info().rss
    return total


def family_cpu_time_s(pid: int) -> float:
    """User and system time that a process and its living descendants have used."""
    total = 0.0
    for process in family(pid):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system
    return total


def own_cpu_time_s() -> float:
    """User and system time that all threads of this process have used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


class RunningProcess:
    """One child process in a session of its own, with its log on disk.

    Use as a context manager: leaving it stops the process and everything it started.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        cpus: Sequence[int] = (),
        env: Mapping[str, str] | None = None,
        log: Path,
        cwd: Path | None = None,
        orphaned: signal.Signals = signal.SIGTERM,
    ) -> None:
        """Start ``argv``; ``orphaned`` is what it gets when this process is gone.

        Raises:
            MachineError: the program does not exist or may not be run.
        """
        self.log = log
        self.argv = tuple(argv)
        with log.open("ab") as stream:
            try:
                self._child = subprocess.Popen(
                    command_pinned(argv, cpus, orphaned),
                    stdin=subprocess.DEVNULL,
                    stdout=stream,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **(env or {})},
                    cwd=cwd,
                    start_new_session=True,
                )
            except OSError as error:
                raise MachineError(
                    f"{argv[0]} cannot be started: {error.strerror}",
                    hint="`infersweep doctor` shows what this machine lacks.",
                ) from None

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """Exit status, negative for a signal; ``None`` while it runs."""
        return self._child.poll()

    @property
    def alive(self) -> bool:
        return self.returncode is None

    def ended(self) -> str:
        """How the process ended, in words."""
        code = self.returncode
        if code is None:
            return "is running"
        if code < 0:
            return f"was killed by {signal.Signals(-code).name}"
        return f"exited with status {code}"

    def rss_bytes(self) -> int:
        """Resident memory of the whole family; pages that they share count once for each."""
        return family_rss_bytes(self.pid)

    def log_tail(self, lines: int = 12) -> str:
        """The last lines of the log."""
        try:
            text = self.log.read_text(encoding="utf-8", errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.rstrip().splitlines()[-lines:])

    def wait(self, timeout_s: float) -> int:
        """Exit status; raises ``subprocess.TimeoutExpired`` when it runs on."""
        return self._child.wait(timeout_s)

    def stop(self, grace_s: float = STOP_GRACE_S) -> StopReport:
        """SIGTERM, wait, then SIGKILL for whatever of the family is left. Safe to call twice."""
        members = family(self.pid)
        if self.alive:
            self._child.send_signal(signal.SIGTERM)
        killed = False
        try:
            self._child.wait(grace_s)
        except subprocess.TimeoutExpired:
            killed = True
            self._child.kill()
            self._child.wait()
        # A daemon's children may outlive it for a moment; what stays is ended by its own id.
        _, left = psutil.wait_procs([p for p in members if p.pid != self.pid], timeout=1.0)
        for process in left:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=1.0)
        return StopReport(self._child.returncode, killed)

    def __enter__(self) -> RunningProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def wait_until(
    condition: Callable[[], bool],
    *,
    deadline_s: float,
    process: RunningProcess | None,
    what: str,
    poll_s: float = 0.05,
) -> float:
    """Poll ``condition`` until it holds; returns the seconds it took.

    Raises:
        ServerError: the process died, or the deadline passed; with the log's last lines.
    """
    start = time.monotonic()
    while not condition():
        if process is not None and not process.alive:
            raise ServerError(
                f"{what}: the process {process.ended()}",
                hint=_with_log(process),
            )
        if time.monotonic() - start > deadline_s:
            raise ServerError(f"{what}: not within {deadline_s:g} s", hint=_with_log(process))
        time.sleep(poll_s)
    return time.monotonic() - start


def _with_log(process: RunningProcess | None) -> str:
    if process is None:
        return "Is the address right, and is the server still starting?"
    return f"Its log {process.log} ends with:\n{process.log_tail() or '(nothing)'}"
