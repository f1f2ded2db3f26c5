"""``infersweep models lint``: every ``config.pbtxt`` checked before a server is started."""

from __future__ import annotations

from rich.console import Console

from loadtest.cli.options import DEFAULT_REPOSITORY, RepositoryOption
from serving.errors import ModelError
from serving.linting import lint
from serving.models.repository import list_models

NAME = "lint"
EXAMPLES = "Example: `infersweep models lint --repository /srv/models`"
_COLOURS = {"error": "red", "warning": "yellow"}


def run(repository: RepositoryOption = DEFAULT_REPOSITORY) -> int:
    """Say file, line, what is wrong and what to do; fails when a server would refuse something."""
    console = Console(soft_wrap=True)
    found = lint(repository)
    for finding in found:
        console.print(str(finding), style=_COLOURS[finding.severity], highlight=False, markup=False)
    errors = sum(finding.severity == "error" for finding in found)
    console.print(
        f"{len(list_models(repository))} configurations: {errors} errors, "
        f"{len(found) - errors} warnings",
        highlight=False,
    )
    return ModelError.exit_code if errors else 0
