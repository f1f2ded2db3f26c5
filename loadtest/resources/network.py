"""Bytes over each network interface, loopback too: ``/proc/net/dev``."""

from __future__ import annotations

from loadtest.resources.record import InterfaceState
from loadtest.resources.roots import Reading, Roots, because, read_file


def read_network(roots: Roots) -> Reading[dict[str, InterfaceState]]:
    """By interface, as this network namespace sees them."""
    try:
        text = read_file(f"{roots.proc}/net/dev")
    except OSError as error:
        return Reading({}, {"network": because(error)})
    interfaces = {}
    for line in text.decode().splitlines()[2:]:
        name, _, numbers = line.rpartition(":")
        counts = numbers.split()
        interfaces[name.strip()] = InterfaceState(
            receive_bytes=int(counts[0]), transmit_bytes=int(counts[8])
        )
    return Reading(interfaces)
