"""``infersweep load``: closed-loop load on one v2 server that already runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from loadtest.cli import compare
from loadtest.cli.options import DEFAULT_REPOSITORY, ModelOption, RepositoryOption

NAME = "load"
EXAMPLES = (
    "Examples: `infersweep load --url http://127.0.0.1:8000 --model image_classifier` · "
    "`infersweep load --url http://127.0.0.1:8000 --concurrency 1,8 --duration 10`"
)


def run(
    url: Annotated[str, typer.Option(help="address of the server")],
    model: ModelOption = "image_classifier",
    concurrency: Annotated[str, typer.Option(help="users at once")] = "1,4",
    duration: Annotated[float, typer.Option(help="seconds of one measured window")] = 4.0,
    repeats: Annotated[int, typer.Option(help="windows per concurrency")] = 1,
    client_cpus: Annotated[str | None, typer.Option(help="such as 3 [default: the last]")] = None,
    out: Annotated[Path | None, typer.Option(help="results folder")] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Check a running server's answers, then measure it; the report is as that of compare."""
    return compare.run(
        model=model,
        backends=f"remote:{url}",
        concurrency=concurrency,
        duration=duration,
        repeats=repeats,
        client_cpus=client_cpus,
        out=out,
        repository=repository,
    )
