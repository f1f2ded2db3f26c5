"""The report: a page and its short form, derived from summary.json and from nothing else."""

from __future__ import annotations

from pathlib import Path

from loadtest.folder import ResultsFolder
from loadtest.report.markdown import markdown
from loadtest.report.page import render


def write_report(folder: ResultsFolder) -> Path:
    """Write report.html, and report.md beside it; return the page's path.

    Raises:
        ResultsError: summary.json is missing or damaged.
    """
    summary = folder.read_summary()
    folder.write_page(folder.report.with_suffix(".md").name, markdown(summary))
    return folder.write_page(folder.report.name, render(summary))
