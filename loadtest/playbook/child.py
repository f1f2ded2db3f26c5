"""A Python process of our own that does what it is told over a socket, one thing after another."""

from __future__ import annotations

import os
import socket
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from serving.errors import InfersweepError, ServerError
from serving.process import RunningProcess

_WITHIN_S = 180.0
_POLL_S = 0.05


@dataclass(frozen=True)
class Child:
    """Attributes: ``name`` is what errors call it."""

    name: str
    process: RunningProcess
    connection: Connection

    def ask(self, what: object) -> Any:
        """What it answers to ``what``, which can be pickled.

        Raises:
            ServerError: it died, failed or took too long.
            InfersweepError: it raised that.
        """
        try:
            self.connection.send(what)
        except OSError:
            self._require_alive()
            raise
        deadline_s = time.monotonic() + _WITHIN_S
        while not self.connection.poll(_POLL_S):
            self._require_alive()
            if time.monotonic() > deadline_s:
                raise ServerError(f"{self.name} did not answer in {_WITHIN_S:g} s", hint=self._log)
        try:
            found = self.connection.recv()
        except (EOFError, ConnectionResetError):
            raise ServerError(f"{self.name} ended early", hint=self._log) from None
        if isinstance(found, InfersweepError):
            raise found
        return found

    def _require_alive(self) -> None:
        if not self.process.alive:
            raise ServerError(f"{self.name} {self.process.ended()}", hint=self._log)

    @property
    def _log(self) -> str:
        return f"Its log {self.process.log} ends with:\n{self.process.log_tail()}"


@contextmanager
def child(
    module: str, *, name: str, cpus: Sequence[int], log: Path, env: Mapping[str, str] | None = None
) -> Iterator[Child]:
    """Run ``python -m module SOCKET``, which calls ``serve``; it is stopped on leaving.

    Raises:
        ServerError: it ended before it connected.
    """
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="infersweep-"))
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        # Only this user may enter the folder.
        listener.bind(address := f"{folder}/socket")
        listener.listen(1)
        listener.settimeout(_POLL_S)
        threads = str(len(cpus))
        own = {"OMP_NUM_THREADS": threads, "OPENBLAS_NUM_THREADS": threads}
        own["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
        argv = [sys.executable, "-m", module, address]
        process = stack.enter_context(
            RunningProcess(argv, cpus=cpus, env={**own, **(env or {})}, log=log)
        )
        while True:
            try:
                accepted, _ = listener.accept()
                break
            except TimeoutError:
                if not process.alive:
                    told = f"Its log {log} ends with:\n{process.log_tail()}"
                    raise ServerError(f"{name} {process.ended()}", hint=told) from None
        with Connection(accepted.detach()) as connection:
            yield Child(name, process, connection)


def serve(answer: Callable[[Any], object]) -> None:
    """In the child: answer whatever is asked, until whoever asks has gone."""
    with socket.socket(socket.AF_UNIX) as connected:
        connected.connect(sys.argv[1])
        connection = Connection(connected.detach())
    while True:
        try:
            what = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            found = answer(what)
        except InfersweepError as error:
            found = error
        except Exception as error:
            # Whatever an arm's own code raises is told; the log has the whole story.
            traceback.print_exception(error)
            found = ServerError(f"{type(error).__name__}: {error}", hint="Its log has more.")
        connection.send(found)
