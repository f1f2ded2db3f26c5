"""Finished runs in formats that other programs read: one line each in the registry."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from loadtest.exporting.hdrlog import write_hdrlog
from loadtest.exporting.tables import write_csv, write_json, write_parquet
from loadtest.exporting.tensorboard import EVENTS, write_tensorboard
from loadtest.folder import ResultsFolder
from loadtest.observing.finished import read_run
from loadtest.observing.openmetrics import Progress, write_text


@dataclass(frozen=True)
class Format:
    """One value of ``--to``.

    Attributes:
        file_name: in the results folder, where ``--out`` names none.
        write: writes a run; its last argument is told how many parts of how many are done.
    """

    file_name: str
    write: Callable[[ResultsFolder, BinaryIO, Progress], None]


@dataclass(frozen=True)
class FolderFormat:
    """A format of several files.

    Attributes:
        file_name: of the folder.
        write: writes a run into a folder that is empty.
        pattern: what the names of all its files match; a folder of others is never replaced.
    """

    file_name: str
    write: Callable[[ResultsFolder, Path, Progress], None]
    pattern: str


def _write_openmetrics(folder: ResultsFolder, stream: BinaryIO, progress: Progress) -> None:
    write_text(read_run(folder), stream, progress)


FORMATS: Mapping[str, Format | FolderFormat] = {
    "openmetrics": Format("openmetrics.txt", _write_openmetrics),
    "csv": Format("trials.csv", write_csv),
    "json": Format("trials.json", write_json),
    "parquet": Format("trials.parquet", write_parquet),
    "hdrlog": Format("response_times.hlog", write_hdrlog),
    "tensorboard": FolderFormat("tensorboard", write_tensorboard, EVENTS),
}
