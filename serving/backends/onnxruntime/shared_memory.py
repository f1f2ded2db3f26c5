"""System shared memory regions that clients have registered.

Regions are read and written through the file, never mapped: a client that shortens its region would
otherwise end the server with SIGBUS. It costs the one copy that a socket costs too.
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from serving.backends.onnxruntime.faults import UnknownModelError
from serving.compression import BodyTooLargeError
from serving.protocol import ProtocolError, Region

FOLDER = Path("/dev/shm")
_KEY = re.compile(r"/?[^/\0]{1,250}")
_NAME_LENGTH = 250
_REGION_LIMIT = 1024


@dataclass(frozen=True)
class _Registered:
    name: str
    key: str
    offset: int
    byte_size: int
    file: int


class SharedMemory:
    """Args: ``read_limit_bytes`` holds for one tensor; ``folder`` has the objects as files."""

    def __init__(self, read_limit_bytes: int, folder: Path = FOLDER) -> None:
        self._read_limit_bytes = read_limit_bytes
        self._folder = folder
        self._regions: dict[str, _Registered] = {}

    def register(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Let requests use ``byte_size`` bytes from ``offset`` of the object ``key``.

        Raises:
            ProtocolError: the name is taken, or the object is not there or too small.
        """
        if len(name) > _NAME_LENGTH:
            raise ProtocolError(f"a region's name of over {_NAME_LENGTH} characters")
        if name in self._regions:
            raise ProtocolError(f"shared memory region {name!r} is registered already")
        if len(self._regions) >= _REGION_LIMIT:
            raise ProtocolError(f"{_REGION_LIMIT} shared memory regions are registered already")
        if not _KEY.fullmatch(key) or key.strip("/") in ("", ".", ".."):
            raise ProtocolError(f"shared memory key {key!r} must be one name without slashes")
        try:
            file = os.open(self._folder / key.lstrip("/"), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError as error:
            raise ProtocolError(f"shared memory key {key!r}: {error.strerror}") from None
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or offset + byte_size > found.st_size:
            os.close(file)
            raise ProtocolError(
                f"shared memory region {name!r} would end at byte {offset + byte_size}; "
                f"{key!r} has {found.st_size}"
            )
        self._regions[name] = _Registered(name, key, offset, byte_size, file)

    def unregister(self, name: str | None) -> None:
        """Forget one region, or all of them when ``name`` is ``None``."""
        for known in [name] if name is not None else list(self._regions):
            region = self._regions.pop(known, None)
            if region:
                os.close(region.file)

    def status(self, name: str | None) -> list[dict[str, str | int]]:
        """What is registered.

        Raises:
            UnknownModelError: there is no such region.
        """
        regions = [self._find(name)] if name is not None else self._regions.values()
        return [
            {"name": r.name, "key": r.key, "offset": r.offset, "byte_size": r.byte_size}
            for r in regions
        ]

    def read(self, part: Region) -> memoryview:
        """The bytes of ``part``, copied out.

        Raises:
            BodyTooLargeError: it is more than the limit.
            ProtocolError: the region is not registered, or too small.
        """
        region, at = self._place(part, part.byte_size)
        if part.byte_size > self._read_limit_bytes:
            raise BodyTooLargeError(
                f"{part.byte_size} bytes in shared memory region {part.name!r} are more than the "
                f"limit of {self._read_limit_bytes} bytes"
            )
        content = np.empty(part.byte_size, np.uint8).data
        if os.preadv(region.file, [content], at) != part.byte_size:
            raise ProtocolError(f"shared memory region {part.name!r} has become shorter")
        return content

    def write(self, part: Region, content: bytes | memoryview) -> int:
        """Put an output into ``part``; returns its bytes.

        Raises:
            ProtocolError: the region is not registered, or too small, or its memory is used up.
        """
        if len(content) > part.byte_size:
            raise ProtocolError(
                f"shared memory region {part.name!r}: the output has {len(content)} bytes, "
                f"{part.byte_size} were offered"
            )
        region, at = self._place(part, len(content))
        if os.fstat(region.file).st_size < at + len(content):
            raise ProtocolError(f"shared memory region {part.name!r} has become shorter")
        try:
            size = os.pwritev(region.file, [content], at)
        except OSError as error:
            raise ProtocolError(f"shared memory region {part.name!r}: {error.strerror}") from None
        if size != len(content):
            raise ProtocolError(f"shared memory region {part.name!r} took {size} bytes only")
        return size

    def _place(self, part: Region, size: int) -> tuple[_Registered, int]:
        region = self._regions.get(part.name)
        if region is None:
            raise ProtocolError(f"shared memory region {part.name!r} is not registered")
        if part.offset + size > region.byte_size:
            raise ProtocolError(
                f"shared memory region {part.name!r} has {region.byte_size} bytes, "
                f"{part.offset + size} are needed"
            )
        return region, region.offset + part.offset

    def _find(self, name: str) -> _Registered:
        region = self._regions.get(name)
        if region is None:
            raise UnknownModelError(f"shared memory region {name!r} is not registered")
        return region
