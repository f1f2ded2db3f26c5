"""Where the kernel tells things, and what reading them gives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

T = TypeVar("T")
_CHUNK_BYTES = 1 << 16


@dataclass(frozen=True)
class Roots:
    """Root folders of the kernel's files; a test lays out another machine's."""

    proc: Path = Path("/proc")
    sys: Path = Path("/sys")


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


def because(error: OSError) -> str:
    """Why a file could not be read: what the kernel said, and of which file."""
    return f"{error.filename}: {error.strerror}" if error.filename else f"{error.strerror}"
