"""One side of a comparison, read from its results folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from loadtest.folder import ResultsFolder
from loadtest.highest import comparable, progress_of, trials_at
from loadtest.measures import SamplesReader, samples_reader
from loadtest.results import BackendRecord, Manifest, Trial
from loadtest.summary import searches_of
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
    configuration: str | None = None

    def at(self, backend: str, level: float) -> list[Trial]:
        return trials_at(self.trials, backend, level)

    def excluded(self, backend: str) -> str | None:
        """Why it was not measured."""
        record = self.records.get(backend)
        return record.excluded if record else None


def read_side(folder: ResultsFolder, name: str) -> Side:
    """Raises ResultsError when the run is missing, damaged, of a newer schema, or unfinished."""
    manifest, records = folder.read_manifest(), folder.read_backends()
    settings, trials = manifest.settings, folder.read_trials()
    searches = searches_of(settings, trials, folder.read_histograms)
    progress, torn = progress_of(settings, trials, records, searches), _is_torn(folder)
    if torn or not progress.complete:
        cut = ", and its last line is half-written" if torn else ""
        raise ResultsError(
            f"{name} is unfinished: {progress.told}{cut}",
            hint=f"Resume it: {folder.resume_command()}",
        )
    return Side(
        name,
        manifest,
        records,
        comparable(settings, trials, searches),
        samples_reader(folder.read_histograms),
        folder.read_configuration(settings.model),
    )


def _is_torn(folder: ResultsFolder) -> bool:
    return folder.trials.is_file() and not folder.trials.read_bytes().endswith(b"\n")
