"""``infersweep models``: what can be served, and building it."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtest.cli.options import DEFAULT_REPOSITORY, RepositoryOption
from serving.models.repository import find_model, list_models
from serving.models.zoo import ENTRIES
from serving.models.zoo.build import ensure_built

app = typer.Typer(help="List and build the models of the repository.", no_args_is_help=True)


@app.command(name="list", epilog="Example: `infersweep models list`")
def list_(repository: RepositoryOption = DEFAULT_REPOSITORY) -> int:
    """Show every model, whether it is built, and where it comes from."""
    table = Table("model", "built", "what", "licence")
    for model in list_models(repository):
        entry = ENTRIES.get(model.name)
        table.add_row(
            model.name,
            f"version {model.version}" if model.is_built else "no",
            entry.summary if entry else "your own",
            entry.licence if entry else "",
        )
    Console().print(table)
    return 0


@app.command(epilog="Examples: `infersweep models build` · `infersweep models build face_detector`")
def build(
    names: Annotated[list[str] | None, typer.Argument(help="models; all when none")] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Fetch weights, check them, and write model.onnx; what is built already is left alone."""
    console = Console()
    for name in names or [model.name for model in list_models(repository)]:
        ensure_built(find_model(name, repository), console.print)
        console.print(f"{name} is built", highlight=False, markup=False)
    return 0
