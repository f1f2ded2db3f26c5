"""``infersweep models build``: the models of the zoo, from their packages."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.options import DEFAULT_REPOSITORY, RepositoryOption
from serving.models.repository import find_model, list_models
from serving.models.zoo.build import ensure_built

NAME = "build"
EXAMPLES = "Examples: `infersweep models build` · `infersweep models build face_detector`"


def run(
    names: Annotated[list[str] | None, typer.Argument(help="models; all when none")] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Fetch weights, check them, and write model.onnx; what is built already is left alone."""
    console = Console()
    for name in names or [model.name for model in list_models(repository)]:
        ensure_built(find_model(name, repository), console.print)
        console.print(f"{name} is built", highlight=False, markup=False)
    return 0
