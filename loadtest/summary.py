"""``summary.json`` from the files of a results folder; may be made again at any time."""

from __future__ import annotations

from loadtest.analysis import summarise
from loadtest.folder import ResultsFolder
from loadtest.results import Summary
from serving.backends.registry import resolve


def write_summary(folder: ResultsFolder) -> Summary:
    """Derive, write and return the summary.

    Raises:
        ResultsError: the folder is damaged or is none.
    """
    manifest = folder.read_manifest()
    exempt = frozenset(
        label for label in manifest.settings.backends if not resolve(label)[0].answers
    )
    summary = summarise(
        manifest,
        folder.read_backends(),
        folder.read_trials(),
        folder.read_histograms,
        exempt=exempt,
    )
    folder.write_summary(summary)
    return summary
