"""Lines of NVIDIA's ``tegrastats``: what a Jetson tells where sysfs does not. The parser is pure.

Format: NVIDIA, *Jetson Linux Developer Guide*, "tegrastats Utility". A line has words and values in
an order that differs between releases, so each is looked for by itself.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadtest.resources.rails import TEGRASTATS, MeterRail, Rail
from loadtest.resources.roots import UnreadableError

STALE_S = 10.0
"""A log that has not grown for so long tells nothing of now."""

_LAST_BYTES = 1 << 14
_RAM = re.compile(r"\bRAM (\d+)/(\d+)MB")
_CPU = re.compile(r"\bCPU \[([^\]]*)\]")
_CORE = re.compile(r"(\d+)%(?:@(\d+))?")
_GPU = re.compile(r"\bGR3D_FREQ (\d+)%(?:@\[?(\d+))?")
_ZONE = re.compile(r"\b([A-Za-z][\w-]*)@(-?\d+(?:\.\d+)?)C\b")
_RAIL = re.compile(r"\b([A-Z][A-Z0-9_]+) (\d+)(?:mW)?/(\d+)(?:mW)?(?![\dMk])")
_NO_RAILS = frozenset({"RAM", "SWAP", "IRAM"})


@dataclass(frozen=True)
class TegraLine:
    """One line. ``None`` or nothing where it does not tell.

    Attributes:
        cores: busy share and clock in hertz of every CPU that is on, in their order; ``None`` for
            one that is off.
        zones: degrees Celsius by name.
        rails: watts at this moment by name; the mean that stands behind is left out.
    """

    used_bytes: int | None
    total_bytes: int | None
    cores: tuple[tuple[float, float | None] | None, ...]
    gpu_busy: float | None
    gpu_hz: float | None
    zones: dict[str, float]
    rails: dict[str, float]


def parse_line(line: str) -> TegraLine:
    """Raises ValueError for a line that is none of tegrastats."""
    ram, gpu = _RAM.search(line), _GPU.search(line)
    rails = {name: int(now) / 1000 for name, now, _ in _RAIL.findall(line)}
    if ram is None and gpu is None and not rails:
        raise ValueError(f"no line of tegrastats: {line[:60]!r}")
    cpus = _CPU.search(line)
    return TegraLine(
        used_bytes=int(ram[1]) << 20 if ram else None,
        total_bytes=int(ram[2]) << 20 if ram else None,
        cores=tuple(map(_core, cpus[1].split(","))) if cpus else (),
        gpu_busy=int(gpu[1]) / 100 if gpu else None,
        gpu_hz=int(gpu[2]) * 1e6 if gpu and gpu[2] else None,
        zones={name: float(celsius) for name, celsius in _ZONE.findall(line)},
        rails={name: watts for name, watts in rails.items() if name not in _NO_RAILS},
    )


def _core(text: str) -> tuple[float, float | None] | None:
    found = _CORE.search(text)
    if found is None:
        return None
    return int(found[1]) / 100, int(found[2]) * 1e6 if found[2] else None


class TegraLog:
    """The newest line of a log that ``tegrastats --logfile`` keeps writing."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._path, self._clock = path, clock

    def newest(self) -> TegraLine:
        """Raises UnreadableError: no log, none of its lines whole, or it has stopped growing."""
        try:
            age_s = self._clock() - self._path.stat().st_mtime
            with self._path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(size - _LAST_BYTES, 0))
                lines = file.read().decode(errors="replace").split("\n")[:-1]
        except OSError as error:
            raise UnreadableError(f"{self._path}: {error.strerror}") from None
        if age_s > STALE_S:
            raise UnreadableError(f"{self._path} has not grown for {age_s:.0f} s")
        try:
            return parse_line(lines[-1] if lines else "")
        except ValueError as error:
            raise UnreadableError(f"{self._path}: {error}") from None

    def rails(self) -> list[Rail]:
        """Those of the line that stands there now; none where there is no line."""
        try:
            names = self.newest().rails
        except UnreadableError:
            return []
        return [MeterRail(f"{TEGRASTATS}:{name}", self._watts(name)) for name in names]

    def _watts(self, name: str) -> Callable[[], float]:
        def read() -> float:
            try:
                return self.newest().rails[name]
            except KeyError:
                raise UnreadableError(f"the newest line of {self._path} has no {name}") from None

        return read
