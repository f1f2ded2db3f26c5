"""Files and folders that appear when all of them is written, and not before."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from serving.errors import MachineError


@contextmanager
def whole_or_absent(path: Path) -> Iterator[BinaryIO]:
    """A file beside ``path`` that takes its place once all is written.

    Raises:
        MachineError: it cannot be written.
    """
    part = _part(path)
    try:
        with part.open("wb") as stream:
            yield stream
        part.replace(path)
    except OSError as error:
        raise _not_written(path, error) from None
    finally:
        with suppress(OSError):
            part.unlink()


@contextmanager
def whole_or_absent_folder(path: Path) -> Iterator[Path]:
    """The same of a folder; what lies at ``path`` is removed in favour of it."""
    part = _part(path)
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir()
        yield part
        if path.exists():
            shutil.rmtree(path)
        part.rename(path)
    except OSError as error:
        raise _not_written(path, error) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """In UTF-8, whole or not at all. Raises MachineError when it cannot be written."""
    with whole_or_absent(path) as stream:
        stream.write(text.encode())


def _part(path: Path) -> Path:
    return path.with_name(f".{path.name}.part")


def _not_written(path: Path, error: OSError) -> MachineError:
    return MachineError(f"{path} was not written: {error}", hint="Choose another file.")
