"""``infersweep export``: a finished run in a format that other programs read."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, BinaryIO

import typer
from rich.console import Console
from rich.progress import Progress

from loadtest.folder import ResultsFolder
from loadtest.observing.finished import read_run
from loadtest.observing.openmetrics import write_text
from serving.errors import MachineError, UsageError

NAME = "export"
EXAMPLES = "Example: `infersweep export results/20260501-120000-image_classifier --to openmetrics`"

_STANDARD_OUTPUT = "-"


@dataclass(frozen=True)
class Format:
    """One value of ``--to``.

    Attributes:
        file_name: in the results folder, where ``--out`` names none.
        write: writes a run; its last argument is told how many parts of how many are done.
    """

    file_name: str
    write: Callable[[ResultsFolder, BinaryIO, Callable[[int, int], None]], None]


def _openmetrics(
    folder: ResultsFolder, stream: BinaryIO, progress: Callable[[int, int], None]
) -> None:
    write_text(read_run(folder), stream, progress)


FORMATS: dict[str, Format] = {
    "openmetrics": Format("openmetrics.txt", _openmetrics),
}


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
    with _whole_or_absent(path) as stream, _shown() as progress:
        chosen.write(results, stream, progress)
    Console(soft_wrap=True).print(f"Written: {path}", highlight=False, markup=False)
    return 0


def _format(to: str) -> Format:
    if to not in FORMATS:
        raise UsageError(f"there is no format {to!r}", hint=f"Choose {', '.join(FORMATS)}.")
    return FORMATS[to]


def _print(results: ResultsFolder, chosen: Format) -> int:
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
def _whole_or_absent(path: Path) -> Iterator[BinaryIO]:
    """A file beside ``path`` that takes its place once all is written.

    Raises:
        MachineError: it cannot be written.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        with part.open("wb") as stream:
            yield stream
        part.replace(path)
    except OSError as error:
        raise MachineError(
            f"{path} was not written: {error}", hint="Choose another --out."
        ) from None
    finally:
        with suppress(OSError):
            part.unlink()


@contextmanager
def _shown() -> Iterator[Callable[[int, int], None]]:
    """A bar on the error output while something is written; none where that is no terminal."""
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("writing", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
