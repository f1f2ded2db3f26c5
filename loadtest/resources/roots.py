"""Where the kernel tells things, and what reading them gives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from serving.errors import UsageError

T = TypeVar("T")
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Roots:
    """Root folders of the kernel's files; a test lays out another machine's.

    Attributes:
        proc: where processes are.
        sys: where sensors are.
        device: below it lie files that tell what the board is, and its memory.
    """

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")
    device: Path = Path("/")


def device_roots(folder: Path | None) -> Roots:
    """Sensors and board from ``folder``, laid out as ``/``; processes are always this machine's.

    Raises:
        UsageError: there is no such folder.
    """
    if folder is None:
        return Roots()
    if not folder.is_dir():
        raise UsageError(
            f"the device folder {folder} does not exist", hint="Give one that is laid out as /."
        )
    return Roots(sys=folder / "sys", device=folder)


@dataclass(frozen=True)
class Reading(Generic[T]):
    """What one reader found, and why the rest could not be read."""

    value: T
    unmeasurable: Mapping[str, str] = field(default_factory=dict)


class UnreadableError(Exception):
    """One figure cannot be read; the text says why."""


def read_file(path: str | Path) -> bytes:
    """A whole file, with as few system calls as it takes.

    Raises:
        OSError: it cannot be read.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        parts = []
        while part := os.read(descriptor, _CHUNK_BYTES):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


def read_text(path: str | Path) -> str:
    """Stripped, also of the null bytes that end texts of a device tree; empty without a file."""
    try:
        return read_file(path).decode(errors="replace").strip().rstrip("\0")
    except OSError:
        return ""


def read_number(path: str | Path) -> int:
    """Raises UnreadableError, with the reason, where ``path`` holds no whole number."""
    try:
        return int(read_file(path))
    except PermissionError as error:
        raise UnreadableError(f"{because(error)}; root may read it") from None
    except OSError as error:
        raise UnreadableError(because(error)) from None
    except ValueError:
        raise UnreadableError(f"{path} holds no number") from None


def because(error: OSError) -> str:
    """Why a file could not be read: what the kernel said, and of which file."""
    return f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror}"
