"""One side of a comparison, read from its results folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtest.folder import ResultsFolder
from loadtest.highest import comparable, missing, trials_at
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
        return trials_at(self.trials, backend, level)

    def excluded(self, backend: str) -> str | None:
        """Why it was not measured."""
        record = self.records.get(backend)
        return record.excluded if record else None


def read_side(folder: ResultsFolder, name: str) -> Side:
    """Raises ResultsError when the run is missing, damaged, of a newer schema, or unfinished."""
    manifest, records = folder.read_manifest(), folder.read_backends()
    trials = folder.read_trials()
    torn = "its last line is half-written" if _is_torn(folder) else ""
    lacking = missing(manifest.settings, trials, records, folder.read_histograms)
    if lacking or torn:
        raise ResultsError(
            f"{name} is unfinished: {', and '.join(filter(None, (lacking, torn)))}",
            hint=f"Resume it: {folder.resume_command()}",
        )
    return Side(
        name,
        manifest,
        records,
        comparable(manifest.settings, trials, folder.read_histograms),
        samples_reader(folder.read_histograms),
        _configuration(folder, manifest.settings.model),
    )


def _configuration(folder: ResultsFolder, model: str) -> bytes | None:
    path = folder.path / "model_repository" / model / "config.pbtxt"
    return path.read_bytes() if path.is_file() else None


def _is_torn(folder: ResultsFolder) -> bool:
    return folder.trials.is_file() and not folder.trials.read_bytes().endswith(b"\n")
