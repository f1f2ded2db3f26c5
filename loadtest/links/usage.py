"""How much of a CPU a relay takes: it writes that down itself, twice a second."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

INTERVAL_S = 0.5

Reading = tuple[float, float]
"""The wall's clock and the CPU time of the process so far, in seconds."""


def append_reading(file: Path) -> None:
    """One line for this process and this moment."""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(f"{time.time():.6f} {time.process_time():.6f}\n")


def read_readings(file: Path) -> list[Reading]:
    """Whole lines only: the last may be half written."""
    if not file.is_file():
        return []
    pairs = (line.split() for line in file.read_text(encoding="utf-8").split("\n")[:-1])
    return [(float(at_s), float(cpu_s)) for at_s, cpu_s in pairs]


def cpu_share(readings: Sequence[Reading], start_s: float, end_s: float) -> float | None:
    """CPU time per time between the first and the last reading from start to end.

    ``None`` where they span less than half of it.
    """
    within = [reading for reading in readings if start_s <= reading[0] <= end_s]
    if len(within) < 2:
        return None
    (first_s, used_before_s), (last_s, used_after_s) = within[0], within[-1]
    if last_s - first_s < (end_s - start_s) / 2:
        return None
    return (used_after_s - used_before_s) / (last_s - first_s)
