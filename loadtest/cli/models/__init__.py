"""``infersweep models``: one file per command, as one level above."""

from __future__ import annotations

import typer

from loadtest.cli.models import add, build, lint, listing, pipeline, show, variant

app = typer.Typer(
    help="What can be served: list, build, add, show and check models.", no_args_is_help=True
)
for command in (listing, build, add, variant, pipeline, show, lint):
    app.command(name=command.NAME, epilog=command.EXAMPLES)(command.run)
