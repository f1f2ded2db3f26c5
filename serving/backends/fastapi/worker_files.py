"""The files in which the workers keep their metrics, put together for one scrape."""

from __future__ import annotations

import contextlib
import sys
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from prometheus_client.core import Metric
from prometheus_client.multiprocess import MultiProcessCollector

from serving.errors import MachineError

_PATTERN = "*.db"


def make_empty(folder: Path) -> None:
    """Let ``folder`` exist, without files of an earlier run; others in it are left alone.

    Raises:
        MachineError: it cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in folder.glob(_PATTERN):
            file.unlink()
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise MachineError(
            f"the folder for the workers' metrics cannot be written: {folder}: {error.strerror}",
            hint="Set PROMETHEUS_MULTIPROC_DIR to a folder for this server alone.",
        ) from None


def remove(folder: Path) -> None:
    """Take the files away, and ``folder`` itself when nothing else is in it."""
    for file in folder.glob(_PATTERN):
        file.unlink()
    with contextlib.suppress(OSError):
        folder.rmdir()


class WorkerFiles(MultiProcessCollector):
    """The workers' metrics, less the files that cannot be read.

    A worker that was killed while it made its file leaves it empty; the library's own collector
    would fail at every scrape from then on.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__(None, str(folder))  # type: ignore[no-untyped-call]
        self._folder = folder
        self._damaged: set[Path] = set()

    def collect(self) -> Iterable[Metric]:
        files = sorted(self._folder.glob(_PATTERN))
        try:
            return self._merged(files)
        except Exception:
            # Whatever damaged bytes lead to: struct.error, RuntimeError, ValueError.
            return self._merged([file for file in files if self._is_whole(file)])

    def _merged(self, files: Sequence[Path]) -> Iterable[Metric]:
        names = [str(file) for file in files]
        found: Iterable[Metric] = self.merge(names)  # type: ignore[no-untyped-call]
        return found

    def _is_whole(self, file: Path) -> bool:
        try:
            self._merged([file])
        except Exception as error:
            if file not in self._damaged:
                self._damaged.add(file)
                print(f"left out of the metrics: {file}: {error}", file=sys.stderr)  # noqa: T201
            return False
        return True
