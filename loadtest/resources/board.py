"""What the board is, and the memory that its CPU and GPU share.

The Jetson's power mode is what ``nvpmodel`` wrote: ``/var/lib/nvpmodel/status`` has its number,
``/etc/nvpmodel.conf`` the names. What its GPU holds stands in debugfs, which root alone may read.
"""

from __future__ import annotations

import re

from loadtest.resources.record import BoardRecord, MemoryState
from loadtest.resources.roots import Reading, Roots, because, read_file, read_text

_KIB = 1024
_MODE = re.compile(r"pmode:(\d+)")
_NAMED_MODE = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+?)\s*>")
_L4T = re.compile(r"R(\d+) \(release\), REVISION: ([\d.]+)")
_GPU_TOTAL = re.compile(rb"^total\s+(\d+)K", re.MULTILINE)


def read_board(roots: Roots) -> BoardRecord:
    """Null where there is no such file: of a device tree on a PC, of L4T on other boards."""
    release = _L4T.search(read_text(roots.device / "etc/nv_tegra_release"))
    return BoardRecord(
        model=read_text(roots.device / "proc/device-tree/model") or None,
        l4t=f"{release[1]}.{release[2]}" if release else None,
    )


def read_power_mode(roots: Roots) -> Reading[str | None]:
    """The mode's name, such as ``15W``; its number where the names cannot be read.

    ``None`` without a reason on a board that is no Jetson.
    """
    status = roots.device / "var/lib/nvpmodel/status"
    found = _MODE.search(read_text(status))
    if found is None:
        is_jetson = (roots.device / "etc/nv_tegra_release").is_file()
        why = {"power_mode": f"{status} does not tell it"} if is_jetson else {}
        return Reading(None, why)
    number = int(found[1])
    names = _NAMED_MODE.findall(read_text(roots.device / "etc/nvpmodel.conf"))
    return Reading(next((name for n, name in names if int(n) == number), f"mode {number}"))


def read_memory(roots: Roots) -> Reading[MemoryState | None]:
    """Of the whole board; ``gpu_bytes`` are inside it where CPU and GPU share their memory."""
    try:
        lines = read_file(roots.device / "proc/meminfo").decode().splitlines()
    except OSError as error:
        return Reading(None, {"memory": because(error)})
    kib = {line.partition(":")[0]: int(line.split()[1]) for line in lines if ":" in line}
    if not {"MemTotal", "MemAvailable"} <= kib.keys():
        return Reading(None, {"memory": "/proc/meminfo tells no MemTotal and MemAvailable"})
    gpu_bytes, why = _gpu_bytes(roots)
    state = MemoryState(
        total_bytes=kib["MemTotal"] * _KIB,
        available_bytes=kib["MemAvailable"] * _KIB,
        gpu_bytes=gpu_bytes,
    )
    return Reading(state, {"memory.gpu_bytes": why} if why else {})


def _gpu_bytes(roots: Roots) -> tuple[int | None, str]:
    """What all clients of nvmap hold; elsewhere than on a Jetson there is nothing to tell."""
    if not (roots.device / "etc/nv_tegra_release").is_file():
        return None, ""
    try:
        found = _GPU_TOTAL.search(read_file(roots.sys / "kernel/debug/nvmap/iovmm/clients"))
    except OSError as error:
        return None, f"{because(error)}; root may read it"
    return (int(found[1]) * _KIB, "") if found else (None, "nvmap tells no total")
