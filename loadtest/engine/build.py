"""Compile the native engine once per source and machine, into the cache folder."""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
from pathlib import Path

from serving.errors import MachineError
from serving.models.weights import cache_folder

_HERE = Path(__file__).parent
_SOURCES = ("engine.c", "turns.c", "api.c")
_HEADERS = ("engine.h", "state.h", "reply.h")
_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-shared", "-fPIC", "-pthread")


def compiler() -> str | None:
    """The C compiler that ``CC`` names, or ``cc``, or ``gcc``; ``None`` without any."""
    return next((c for c in (os.environ.get("CC"), "cc", "gcc") if c and shutil.which(c)), None)


def library_path() -> Path:
    """Where the compiled engine of this source lies, whether it is there or not."""
    source = hashlib.sha256(platform.machine().encode())
    for name in (*_SOURCES, *_HEADERS):
        source.update((_HERE / name).read_bytes())
    return cache_folder() / f"engine-{source.hexdigest()[:16]}.so"


def build() -> Path:
    """Compile unless that was done before.

    Raises:
        MachineError: there is no C compiler, or it fails.
    """
    library = library_path()
    if library.is_file():
        return library
    program = compiler()
    if program is None:
        raise MachineError(
            "the native load engine needs a C compiler and there is none",
            hint="apt-get install gcc libc6-dev, or choose the slower --engine python.",
        )
    library.parent.mkdir(parents=True, exist_ok=True)
    part = library.with_suffix(f".{os.getpid()}.part")
    done = subprocess.run(
        [program, *_FLAGS, *(str(_HERE / name) for name in _SOURCES), "-o", str(part)],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise MachineError(
            f"{program} cannot compile the native load engine: {_first_line(done.stderr)}",
            hint="apt-get install libc6-dev, or choose the slower --engine python.",
        )
    part.replace(library)
    return library


def _first_line(text: str) -> str:
    return next((line for line in text.splitlines() if "error" in line), text.strip()[:200])
