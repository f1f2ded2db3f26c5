"""How far the memory of another process rises."""

from __future__ import annotations

from pathlib import Path


class PeakMemory:
    """The largest resident memory of a process inside the ``with`` block, above what it was.

    The kernel keeps the peak (proc(5): ``VmHWM``), so that no sampling can miss it.
    """

    def __init__(self, pid: int) -> None:
        self._folder = Path(f"/proc/{pid}")
        self._before_bytes = 0
        self.growth_bytes = 0

    def __enter__(self) -> PeakMemory:
        self._folder.joinpath("clear_refs").write_text("5")
        self._before_bytes = self._peak_bytes()
        return self

    def __exit__(self, *_: object) -> None:
        self.growth_bytes = self._peak_bytes() - self._before_bytes

    def _peak_bytes(self) -> int:
        text = self._folder.joinpath("status").read_text()
        (line,) = (line for line in text.splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) * 1024
