"""``infersweep models list``: what the repository holds."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from loadtest.cli.options import DEFAULT_REPOSITORY, RepositoryOption
from serving.errors import ModelError
from serving.models.repository import Model, list_models
from serving.models.zoo import ENTRIES

NAME = "list"
EXAMPLES = "Example: `infersweep models list`"


def run(repository: RepositoryOption = DEFAULT_REPOSITORY) -> int:
    """Show every model, whether it is built, and where it comes from."""
    table = Table("model", "built", "what", "licence")
    for model in list_models(repository):
        entry = ENTRIES.get(model.name)
        table.add_row(
            model.name,
            f"version {model.version}" if model.is_built else "no",
            entry.summary if entry else _what(model),
            entry.licence if entry else "",
        )
    Console().print(table)
    return 0


def _what(model: Model) -> str:
    try:
        config = model.config
    except ModelError:
        return "cannot be read: see `infersweep models lint`"
    if config.pipeline is not None:
        return f"{config.pipeline.model} behind {config.pipeline.front}"
    if config.front is not None:
        return f"front half: {config.front.payload} to {config.front.height} x {config.front.width}"
    return "your own"
