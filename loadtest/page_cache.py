"""Files in the kernel's page cache: which a process needs, how much lies there, dropping them.

The kernel is asked by posix_fadvise(2) with POSIX_FADV_DONTNEED, for which no privilege is needed.
It keeps pages that a living process has mapped, so mincore(2) is asked what really left.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

from serving.process import family

_NOT_ON_DISK = ("/dev/", "/proc/", "/sys/", "/memfd:")
_FAILED = ctypes.c_void_p(-1).value


@dataclass(frozen=True)
class Cached:
    """What the page cache holds of some files.

    Attributes:
        resident_bytes: by file, for those of which something lies there.
        untold: files whose share the kernel does not tell: they are another user's.
    """

    resident_bytes: Mapping[Path, int]
    untold: frozenset[Path]

    @property
    def total_bytes(self) -> int:
        return sum(self.resident_bytes.values())


def files_of(pid: int) -> frozenset[Path]:
    """Regular files that a process and its descendants have mapped or open at this moment."""
    return frozenset(
        path
        for process in family(pid)
        for path in (*_mapped(process.pid), *_open(process.pid))
        if _is_on_disk(path)
    )


def cached(files: Iterable[Path]) -> Cached:
    """How much of each lies in memory; files that are gone are left out."""
    resident: dict[Path, int] = {}
    untold = set()
    for file in files:
        with contextlib.suppress(OSError):
            if not _is_told(file):
                untold.add(file)
            elif found := _resident_bytes(file):
                resident[file] = found
    return Cached(resident, frozenset(untold))


def drop(files: Iterable[Path]) -> None:
    """Ask the kernel to forget what it holds of them; nothing on disk changes."""
    for file in files:
        with contextlib.suppress(OSError):
            descriptor = os.open(file, os.O_RDONLY)
            try:
                # A page that is not yet on disk cannot be dropped.
                os.fdatasync(descriptor)
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


def holders(files: Iterable[Path]) -> dict[Path, set[str]]:
    """By file, the names of the living processes that have it mapped."""
    wanted = set(files)
    found: dict[Path, set[str]] = {}
    for process in psutil.process_iter(["name"]):
        for path in wanted.intersection(_mapped(process.pid)):
            found.setdefault(path, set()).add(process.info["name"])
    return found


def _mapped(pid: int) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/maps").read_text(errors="surrogateescape").splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6 and fields[5].startswith("/"):
                yield Path(fields[5])


def _open(pid: int) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                yield Path(entry.path).readlink()


def _is_on_disk(path: Path) -> bool:
    """Whether it is a file still, which a deleted one is not by its name in /proc."""
    return path.is_absolute() and not str(path).startswith(_NOT_ON_DISK) and path.is_file()


def _is_told(file: Path) -> bool:
    """Since Linux 5.2 mincore tells of own and writable files only, and calls all others whole."""
    return file.stat().st_uid == os.geteuid() or os.access(file, os.W_OK)


def _resident_bytes(file: Path) -> int:
    descriptor = os.open(file, os.O_RDONLY)
    try:
        found = os.fstat(descriptor)
        if not found.st_size or not stat.S_ISREG(found.st_mode):
            return 0
        pages = _resident_pages(descriptor, found.st_size)
        return min(pages * mmap.PAGESIZE, found.st_size)
    finally:
        os.close(descriptor)


def _resident_pages(descriptor: int, length: int) -> int:
    """Mapping a file reads nothing of it.

    Raises:
        OSError: it cannot be mapped.
    """
    libc = _libc()
    at = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, descriptor, 0)
    if at == _FAILED:
        raise OSError(ctypes.get_errno(), "mmap")
    try:
        told = (ctypes.c_ubyte * -(-length // mmap.PAGESIZE))()
        if libc.mincore(at, length, told):
            raise OSError(ctypes.get_errno(), "mincore")
        return sum(page & 1 for page in bytes(told))
    finally:
        libc.munmap(at, length)


@cache
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    size, number, address = ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p
    libc.mmap.argtypes = (address, size, number, number, number, ctypes.c_long)
    libc.mmap.restype = address
    libc.mincore.argtypes = (address, size, address)
    libc.munmap.argtypes = (address, size)
    return libc
