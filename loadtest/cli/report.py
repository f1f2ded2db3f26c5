"""``infersweep report``: summary and page again, from the files of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.slo import show
from loadtest.folder import ResultsFolder
from loadtest.report import write_report
from loadtest.report.terminal import summary_table
from loadtest.slo.run import derive
from loadtest.summary import write_summary

NAME = "report"
EXAMPLES = "Example: `infersweep report results/20260501-120000-image_classifier`"


def run(folder: Annotated[Path, typer.Argument(help="results folder")]) -> int:
    """Make summary.json and report.html again, without any load; of a search, its own files."""
    results = ResultsFolder(folder)
    if results.read_manifest().settings.objectives:
        record, _ = derive(results, {})
        show(Console(), record, results)
        return 0
    summary = write_summary(results)
    page = write_report(results)
    console = Console()
    console.print(summary_table(summary))
    console.print(summary.ranking.sentence, style="bold", highlight=False)
    console.print(f"Report: {page}", highlight=False)
    return 0
