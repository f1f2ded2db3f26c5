"""One side of a comparison, read from its results folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtest.folder import ResultsFolder
from loadtest.measures import SamplesReader, samples_reader
from loadtest.results import BackendRecord, Manifest, Trial
from serving.errors import ResultsError


@dataclass(frozen=True)
class Side:
    """A finished run.

    Attributes:
        name: of its folder, as it was given.
        configuration: the ``config.pbtxt`` that was served; ``None`` where it was not kept.
    """

    name: str
    manifest: Manifest
    records: Mapping[str, BackendRecord]
    trials: Sequence[Trial]
    samples: SamplesReader
    configuration: bytes | None = None

    def at(self, backend: str, level: float) -> list[Trial]:
        return [t for t in self.trials if t.backend == backend and t.level == level]

    def excluded(self, backend: str) -> str | None:
        """Why it was not measured."""
        record = self.records.get(backend)
        return record.excluded if record else None


def read_side(folder: ResultsFolder, name: str) -> Side:
    """Raises ResultsError when the run is missing, damaged, of a newer schema, or unfinished."""
    manifest, records = folder.read_manifest(), folder.read_backends()
    trials = folder.read_trials()
    side = Side(
        name,
        manifest,
        records,
        trials,
        samples_reader(folder.read_histograms),
        _configuration(folder, manifest.settings.model),
    )
    _require_finished(side, folder)
    return side


def _configuration(folder: ResultsFolder, model: str) -> bytes | None:
    path = folder.path / "model_repository" / model / "config.pbtxt"
    return path.read_bytes() if path.is_file() else None


def _require_finished(side: Side, folder: ResultsFolder) -> None:
    settings = side.manifest.settings
    measured = [label for label in settings.backends if not side.excluded(label)]
    planned = len(measured) * len(settings.levels) * settings.repeats
    done = sum(trial.backend in measured for trial in side.trials)
    torn = _is_torn(folder)
    if done < planned or torn:
        cut = ", and its last line is half-written" if torn else ""
        raise ResultsError(
            f"{side.name} is unfinished: {done} of {planned} trials{cut}",
            hint=f"Resume it: {folder.resume_command()}",
        )


def _is_torn(folder: ResultsFolder) -> bool:
    return folder.trials.is_file() and not folder.trials.read_bytes().endswith(b"\n")
