"""How long each CPU was busy: ``/proc/stat``."""

from __future__ import annotations

import os

from loadtest.resources.record import CoreState
from loadtest.resources.roots import Reading, Roots, because, read_file

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def read_cores(roots: Roots) -> Reading[dict[str, CoreState]]:
    """By the CPU's number.

    proc(5): user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice; the guests'
    time is part of user and nice.
    """
    try:
        text = read_file(f"{roots.proc}/stat")
    except OSError as error:
        return Reading({}, {"cores": because(error)})
    cores = {}
    for line in text.splitlines():
        name, _, rest = line.partition(b" ")
        if not name.startswith(b"cpu"):
            break
        if name != b"cpu":
            user, nice, system, _, _, irq, softirq, stolen = map(int, rest.split()[:8])
            cores[name[3:].decode()] = CoreState(
                busy_s=(user + nice + system + irq + softirq) / _TICKS_PER_S,
                stolen_s=stolen / _TICKS_PER_S,
            )
    return Reading(cores)
