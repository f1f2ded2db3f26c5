"""The GPU inside a Jetson's chip, of which NVML tells nothing: load and clock by sysfs.

``/sys/class/devfreq/<name>`` has the clock, ``device/load`` beside it the load in per mille. The
GPU is called ``gpu`` or by its chip (``ga10b`` on Orin, ``gv11b`` on Xavier, ``gp10b`` on TX2).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from loadtest.resources.record import GpuState
from loadtest.resources.roots import Reading, Roots, UnreadableError, read_number

_CHIPS = ("gpu", "ga10b", "gv11b", "gp10b", "gm20b")
_PER_MILLE = 1000


def find_tegra_gpus(roots: Roots) -> list[Path]:
    """Folders of devfreq."""
    folders = sorted((roots.sys / "class/devfreq").glob("*"))
    return [folder for folder in folders if folder.name.rpartition(".")[2] in _CHIPS]


def read_tegra_gpus(folders: list[Path]) -> Reading[dict[str, GpuState]]:
    """By name; what such a GPU does not tell of itself is told by the board."""
    found, why = {}, {}
    for folder in folders:
        figures: dict[str, Any] = {}
        for figure, file, unit in (
            ("utilisation", folder / "device/load", 1 / _PER_MILLE),
            ("sm_clock_hz", folder / "cur_freq", 1.0),
        ):
            try:
                figures[figure] = read_number(file) * unit
            except UnreadableError as error:
                why[f"gpus.{folder.name}.{figure}"] = str(error)
        found[folder.name] = GpuState(**figures)
        why |= {
            f"gpus.{folder.name}.{figure}": text
            for figure, text in (
                ("memory_bytes", "it shares the board's memory"),
                ("temperature_celsius", "the board's thermal zones tell it"),
                ("throttled", "the board's cooling devices and event counters tell it"),
                ("memory_clock_hz", "not told by sysfs"),
                ("engine_active", "it has no performance monitor"),
                ("sm_active", "it has no performance monitor"),
            )
        }
    return Reading(found, why)
