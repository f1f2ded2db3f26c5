"""The page that a person reads: figures and a table, made from ``summary.json`` alone."""

from __future__ import annotations

from pathlib import Path

from loadtest.report.page import render
from loadtest.results import ResultsFolder


def write_report(folder: ResultsFolder) -> Path:
    """Write ``report.html`` and return its path.

    Raises:
        ResultsError: there is no summary, or it is damaged.
    """
    page = render(folder.read_summary())
    folder.report.write_text(page, encoding="utf-8")
    return folder.report
