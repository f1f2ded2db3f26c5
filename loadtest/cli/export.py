"""``infersweep export``: a finished run in a format that other programs read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress

from loadtest.exporting import FORMATS, FolderFormat, Format
from loadtest.exporting.files import whole_or_absent, whole_or_absent_folder
from loadtest.folder import ResultsFolder
from serving.errors import MachineError, UsageError

NAME = "export"
EXAMPLES = (
    "Examples: `infersweep export results/20260501-120000-image_classifier --to openmetrics` · "
    "`infersweep export results/20260501-120000-image_classifier --to csv --out -`"
)

_STANDARD_OUTPUT = "-"


def run(
    folder: Annotated[Path, typer.Argument(help="results folder")],
    to: Annotated[str, typer.Option("--to", help=f"format: {', '.join(FORMATS)}")],
    out: Annotated[
        Path | None,
        typer.Option("--out", help="file, - for standard output; by default in the results folder"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="replace the file of --out")] = False,
) -> int:
    """Write a finished run in another format, without any load.

    The file in the results folder is made again each time; one named by --out is never replaced
    without --force.
    """
    results, chosen = ResultsFolder(folder), _format(to)
    if str(out) == _STANDARD_OUTPUT:
        return _print(results, chosen)
    path = results.path / chosen.file_name if out is None else out
    if out is not None and path.exists() and not force:
        raise UsageError(f"{path} exists", hint="Give --force to replace it, or another --out.")
    # Before a file is begun: a folder that is none is told as such.
    results.read_manifest()
    with _shown() as progress:
        if isinstance(chosen, FolderFormat):
            _require_own(path, chosen)
            with whole_or_absent_folder(path) as empty:
                chosen.write(results, empty, progress)
        else:
            with whole_or_absent(path) as stream:
                chosen.write(results, stream, progress)
    Console(soft_wrap=True).print(f"Written: {path}", highlight=False, markup=False)
    return 0


def _format(to: str) -> Format | FolderFormat:
    if to not in FORMATS:
        raise UsageError(f"there is no format {to!r}", hint=f"Choose {', '.join(FORMATS)}.")
    return FORMATS[to]


def _require_own(path: Path, chosen: FolderFormat) -> None:
    """A folder is removed to be replaced, so it must hold nothing but an earlier export."""
    strange = path.is_file() or any(
        not found.match(chosen.pattern) for found in path.rglob("*") if not found.is_dir()
    )
    if strange:
        raise UsageError(f"{path} holds other files than an export", hint="Choose another --out.")


def _print(results: ResultsFolder, chosen: Format | FolderFormat) -> int:
    if isinstance(chosen, FolderFormat):
        raise UsageError("this format is a folder", hint="Name one with --out.")
    stream = sys.stdout.buffer
    try:
        with _shown() as progress:
            chosen.write(results, stream, progress)
        stream.flush()
    except OSError as error:
        # What is still buffered must go somewhere at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        # Whoever closed the pipe has seen enough.
        if not isinstance(error, BrokenPipeError):
            raise MachineError(
                f"standard output took no more: {error}", hint="Name a file with --out."
            ) from None
    return 0


@contextmanager
def _shown() -> Iterator[Callable[[int, int], None]]:
    """A bar on the error output while something is written; none where that is no terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("writing", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
