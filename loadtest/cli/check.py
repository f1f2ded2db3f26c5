"""``infersweep check``: do the backends answer what the reference session answers?"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtest.cli.options import (
    DEFAULT_BACKENDS,
    DEFAULT_REPOSITORY,
    ModelOption,
    RepositoryOption,
    interrupt_on_sigterm,
    parse_backends,
)
from serving.deployment import Placement, fetch_needed, running
from serving.errors import ParityError
from serving.host import cpu_budget
from serving.models.repository import find_model
from serving.models.zoo.build import ensure_built
from serving.parity import ParityResult, check_parity, reference_for

NAME = "check"
EXAMPLES = (
    "Examples: `infersweep check --model face_detector` · "
    "`infersweep check --backends remote:http://127.0.0.1:8000`"
)


def run(
    model: ModelOption = "image_classifier",
    backends: Annotated[str, typer.Option(help="comma-separated")] = DEFAULT_BACKENDS,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Start each backend and compare its answers with an in-process session, row by row."""
    console = Console()
    found = find_model(model, repository)
    labels = parse_backends(backends)
    ensure_built(found, console.print)
    fetch_needed(labels, console.print)
    reference = reference_for(found)
    budget = cpu_budget()
    placement = Placement(budget.ids[: budget.usable], budget.usable)
    results: dict[str, ParityResult] = {}
    with interrupt_on_sigterm(), tempfile.TemporaryDirectory(prefix="infersweep-") as folder:
        for label in labels:
            console.print(f"checking {label}", highlight=False, markup=False)
            work = Path(folder)
            with running(
                label, found, placement, repository=work / "model_repository", logs=work
            ) as server:
                results[label] = check_parity(server.url, server.model, reference)
    console.print(_table(results))
    failed = [label for label, result in results.items() if not result.passed]
    if failed:
        raise ParityError(
            f"{', '.join(failed)} answered differently: {results[failed[0]].detail}",
            hint="Do not compare its speed before its answers are right.",
        )
    return 0


def _table(results: dict[str, ParityResult]) -> Table:
    table = Table("backend", "answers", "rows compared", "largest difference", "tolerance")
    for label, result in results.items():
        difference = result.largest_difference
        table.add_row(
            label,
            "equal" if result.passed else "DIFFERENT",
            str(result.rows),
            "none came" if difference is None else f"{difference:.3g}",
            str(result.tolerance),
        )
    return table
