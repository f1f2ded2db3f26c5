"""``infersweep report``: summary and page again, from the files of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.measure import conclude
from loadtest.folder import ResultsFolder
from loadtest.report import write_report
from loadtest.report.markdown import markdown
from loadtest.summary import write_summary

NAME = "report"
EXAMPLES = (
    "Examples: `infersweep report results/20260501-120000-image_classifier` · "
    "`infersweep report RESULTS --markdown > comment.md`"
)


def run(
    folder: Annotated[Path, typer.Argument(help="results folder")],
    markdown_only: Annotated[
        bool, typer.Option("--markdown", help="print the short form for a pull request instead")
    ] = False,
) -> int:
    """Make summary.json, report.html and report.md again, without any load."""
    results = ResultsFolder(folder)
    if not markdown_only:
        conclude(Console(), results)
        return 0
    summary = write_summary(results)
    write_report(results)
    typer.echo(markdown(summary), nl=False)
    return 0
