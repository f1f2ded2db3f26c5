"""A results folder: what is written, when, and how it is read back.

<folder>/manifest.json        machine, versions, settings, checksums; written before any load
<folder>/trials.jsonl         one line per finished trial, appended and flushed to disk
<folder>/histograms/<id>.json HDR histograms of one trial, per outcome and one-second window
<folder>/requests/<id>.npy    every request of one trial, where a run keeps them
<folder>/starts.jsonl         one line per start of a server: how long it took, what was cached
<folder>/resources.jsonl      what the machine and the processes used, a line about every second
<folder>/live/                counts of the generators while they run, for whoever scrapes them
<folder>/logs/                what servers and generators printed
<folder>/model_repository/    the very configuration that was served
<folder>/summary.json         derived from the above; may be made again at any time
<folder>/report.html          derived from summary.json, as is report.md
"""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from loadtest.explained import Start
from loadtest.record import Record
from loadtest.results import SCHEMA_VERSION, BackendRecord, Histograms, Manifest, Summary, Trial
from serving.errors import ResultsError

_R = TypeVar("_R", bound=Record)


class ResultsFolder:
    """Reads and writes one results folder. Every write is whole or absent."""

    def __init__(self, path: Path) -> None:
        # Absolute, since the generator runs in another folder.
        self.path = path.absolute()

    @property
    def logs(self) -> Path:
        return self._made("logs")

    @property
    def live(self) -> Path:
        return self._made("live")

    @property
    def repository(self) -> Path:
        return self._made("model_repository")

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def trials(self) -> Path:
        return self.path / "trials.jsonl"

    @property
    def starts(self) -> Path:
        return self.path / "starts.jsonl"

    @property
    def resources(self) -> Path:
        return self.path / "resources.jsonl"

    @property
    def exists(self) -> bool:
        return (self.path / "manifest.json").is_file()

    def _made(self, name: str) -> Path:
        folder = self.path / name
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def write_manifest(self, manifest: Manifest) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        self._write("manifest.json", manifest)

    def read_manifest(self) -> Manifest:
        """Raises ResultsError when there is none or its schema is newer."""
        return self._read("manifest.json", Manifest)

    def write_backend(self, record: BackendRecord) -> None:
        self._made("backends")
        self._write(f"backends/{file_name(record.label)}.json", record)

    def read_backends(self) -> dict[str, BackendRecord]:
        """By label."""
        files = sorted((self.path / "backends").glob("*.json"))
        records = [self._read(f"backends/{file.name}", BackendRecord) for file in files]
        return {record.label: record for record in records}

    def read_configuration(self, model: str) -> str | None:
        """``config.pbtxt`` as it was served; ``None`` where none was written."""
        path = self.path / "model_repository" / model / "config.pbtxt"
        return path.read_text(encoding="utf-8") if path.is_file() else None

    def read_served(self, backend: str, model: str) -> str | None:
        """``config.pbtxt`` as this backend served it, with what was set for it."""
        own = self.path / "settings" / file_name(backend) / model / "config.pbtxt"
        return own.read_text("utf-8") if own.is_file() else self.read_configuration(model)

    def reply_bytes(self) -> int:
        """Of one right answer with binary tensors, as it was prepared for comparison.

        Raises:
            ResultsError: no requests were prepared here.
        """
        path = self.path / "payloads" / "0.reply"
        if not path.is_file():
            raise ResultsError(f"{path} is missing", hint="Measure again.")
        return path.stat().st_size

    def append_trial(self, trial: Trial, histograms: Histograms) -> None:
        """Histograms first, then the line that makes the trial count."""
        self._made("histograms")
        self._write(f"histograms/{trial.id}.json", histograms)
        _append(self.trials, trial)

    def new_requests(self) -> Path:
        """Where generators put requests until their trial has a name, as ``<level>.npy``."""
        return self._made("requests/new")

    def keep_requests(self, trial: Trial) -> None:
        """Give the requests of this trial its name; call before ``append_trial``."""
        (self.path / f"requests/new/{trial.level:g}.npy").replace(self._requests(trial.id))

    def read_requests(self, trial_id: str) -> npt.NDArray[Any]:
        """Columns as in ``loadtest.recorder.KEPT``.

        Raises:
            ResultsError: the run did not keep them, or the file is damaged.
        """
        path = self._requests(trial_id)
        try:
            found: npt.NDArray[Any] = np.load(path)
        except (OSError, ValueError, EOFError) as error:
            raise ResultsError(f"{path} cannot be read: {error}", hint="Measure again.") from None
        return found

    def _requests(self, trial_id: str) -> Path:
        return self.path / "requests" / f"{trial_id}.npy"

    def append_start(self, start: Start) -> None:
        _append(self.starts, start)

    def read_starts(self) -> list[Start]:
        """Starts of servers in the order they happened; none in folders of older versions."""
        return list(_lines(self.starts, Start))

    def clear_live(self) -> None:
        """Remove what generators of an earlier command counted; it is in the trials too."""
        for file in self.live.iterdir():
            file.unlink()

    def read_trials(self) -> list[Trial]:
        """Finished trials in the order they ran; a half-written last line is left out."""
        return list(_lines(self.trials, Trial))

    def drop_half_written(self) -> None:
        """Cut off a last line that a kill left unfinished, so that appending is safe again."""
        for path in (self.trials, self.starts):
            if path.is_file():
                text = path.read_bytes()
                whole = text[: text.rfind(b"\n") + 1]
                if whole != text:
                    path.write_bytes(whole)

    def read_histograms(self, trial_id: str) -> Histograms:
        return self._read(f"histograms/{trial_id}.json", Histograms)

    def write_derived(self, name: str, record: Record) -> None:
        """A file that one command derives from its trials, such as ``search.json``."""
        self._write(name, record)

    def read_derived(self, name: str, kind: type[_R]) -> _R:
        """Raises ResultsError when it is missing or damaged."""
        return self._read(name, kind)

    def write_page(self, name: str, text: str) -> Path:
        """A page that is derived from the rest; returns its path."""
        return self._write_text(name, text)

    def resume_command(self) -> str:
        """What goes on with a run that was interrupted."""
        command = shlex.split(self.read_manifest().command)
        if "--out" not in command:
            command += ["--out", str(self.path)]
        return shlex.join(command)

    def write_summary(self, summary: Summary) -> None:
        self._write("summary.json", summary)

    def read_summary(self) -> Summary:
        return self._read("summary.json", Summary)

    def _write(self, name: str, record: Record) -> None:
        self._write_text(name, record.model_dump_json(indent=2) + "\n")

    def _write_text(self, name: str, text: str) -> Path:
        path = self.path / name
        temporary = path.with_name(f".{path.name}.part")
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
        return path

    def _read(self, name: str, kind: type[_R]) -> _R:
        path = self.path / name
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise ResultsError(
                f"{path} does not exist", hint="Is this a results folder of infersweep?"
            ) from None
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise _damaged(str(path), error) from None
        version = data.get("schema_version", SCHEMA_VERSION) if isinstance(data, dict) else 0
        if not isinstance(version, int):
            raise _damaged(str(path), ValueError(f"schema_version is {version!r}"))
        if version > SCHEMA_VERSION:
            raise ResultsError(
                f"{path} has schema version {version}, this infersweep reads {SCHEMA_VERSION}",
                hint="Read it with the infersweep that wrote it, or a newer one.",
            )
        try:
            return kind.model_validate(data)
        except ValidationError as error:
            raise _damaged(str(path), error) from None


def file_name(label: str) -> str:
    """A label as a name for files and folders."""
    return "".join(c if c.isalnum() or c in "-." else "_" for c in label)


def _append(path: Path, record: Record) -> None:
    """One line, on disk before this returns."""
    with path.open("a", encoding="utf-8") as stream:
        stream.write(record.model_dump_json() + "\n")
        stream.flush()
        os.fsync(stream.fileno())


def _lines(path: Path, kind: type[_R]) -> Iterator[_R]:
    """Whole lines only; none where there is no file."""
    if not path.is_file():
        return
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            yield kind.model_validate_json(line)
        except ValidationError as error:
            raise _damaged(f"{path} line {number}", error) from None


def _damaged(where: str, error: Exception) -> ResultsError:
    first = str(error).splitlines()[0]
    return ResultsError(
        f"{where} is damaged: {first}", hint="Restore it, or start again with another --out."
    )
