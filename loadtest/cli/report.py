"""``infersweep report``: summary and page again, from the files of a finished run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.measure import conclude
from loadtest.folder import ResultsFolder

NAME = "report"
EXAMPLES = "Example: `infersweep report results/20260501-120000-image_classifier`"


def run(folder: Annotated[Path, typer.Argument(help="results folder")]) -> int:
    """Make summary.json and report.html again, without any load."""
    conclude(Console(), ResultsFolder(folder))
    return 0
