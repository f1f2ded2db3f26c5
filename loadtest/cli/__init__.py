"""The ``infersweep`` command: one file per subcommand, one line per error."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli import (
    calibrate,
    check,
    compare,
    doctor,
    export,
    gate,
    history,
    load,
    models,
    observe,
    offload,
    plan,
    playbook,
    profile,
    profile_model,
    report,
    scenarios,
    serve,
    setup,
    slo,
    soak,
    tune,
)
from serving.errors import INTERRUPTED_EXIT_CODE, InfersweepError

app = typer.Typer(
    name="infersweep",
    help="Which inference server, how it should be set, and how many: measured, with a verdict.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    rich_markup_mode="markdown",
)
for command in (
    compare,
    load,
    slo,
    soak,
    tune,
    offload,
    serve,
    check,
    observe,
    profile,
    profile_model,
    plan,
    report,
    export,
    gate,
    history,
    scenarios,
    calibrate,
    doctor,
    setup,
):
    app.command(name=command.NAME, epilog=command.EXAMPLES)(command.run)
app.add_typer(models.app, name="models")
app.add_typer(playbook.app, name=playbook.NAME)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"infersweep {version('infersweep')}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", callback=_tell_version, is_eager=True, help="print it and leave"),
    ] = False,
) -> None:
    """Options of the command itself."""


def main() -> None:
    """Entry point. A user's mistake gives one line and the exit code of its kind."""
    try:
        status = app(standalone_mode=False)
    except typer.Abort:
        sys.exit(INTERRUPTED_EXIT_CODE)
    except KeyboardInterrupt:
        _say("interrupted; every server that was started has been stopped")
        sys.exit(INTERRUPTED_EXIT_CODE)
    except InfersweepError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except typer.Exit as leave:
        sys.exit(leave.exit_code)
    except Exception as error:
        # Click's own mistakes (an unknown option, a value of the wrong type) carry their text.
        if not hasattr(error, "format_message"):
            raise
        _say(f"{error.format_message()} Add --help for what can be given.")
        sys.exit(2)
    sys.exit(status if isinstance(status, int) else 0)


def _say(text: str) -> None:
    Console(stderr=True, soft_wrap=True).print(f"infersweep: {text}", markup=False, style="red")
