"""The report: one page, derived from summary.json and from nothing else."""

from __future__ import annotations

from pathlib import Path

from loadtest.folder import ResultsFolder
from loadtest.report.page import render


def write_report(folder: ResultsFolder) -> Path:
    """Write report.html and return its path.

    Raises:
        ResultsError: summary.json is missing or damaged.
    """
    return folder.write_page(folder.report.name, render(folder.read_summary()))
