"""Temperatures, what cools by slowing down, and what the hardware counts of its own throttling.

https://docs.kernel.org/driver-api/thermal/sysfs-api.html. Intel's counters are those of the
kernel's ``thermal_throttle``; the over-current events of Jetson Orin those of ``soctherm_oc``:
NVIDIA, *Jetson Linux Developer Guide*, "Jetson Orin Nano Series, Jetson Orin NX Series and Jetson
AGX Orin Series".
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from loadtest.resources.record import CoolerState, ThrottleState, ZoneState
from loadtest.resources.roots import Reading, Roots, UnreadableError, read_number, read_text

S = TypeVar("S")
Readers = Mapping[str, Callable[[], S]]
"""By name; each raises UnreadableError."""

_OC_EVENTS = {
    "oc1": "under-voltage",
    "oc2": "average over-current",
    "oc3": "instantaneous over-current",
}
"""Of ``soctherm_oc`` on Jetson Orin; other boards number them otherwise."""


def find_zones(roots: Roots) -> Readers[ZoneState]:
    """Thermal zones by their type, such as ``cpu-thermal``; millidegrees in the files."""

    def reader(file: Path) -> Callable[[], ZoneState]:
        return lambda: ZoneState(celsius=read_number(file) / 1000)

    return {name: reader(folder / "temp") for name, folder in _typed(roots.sys, "thermal_zone*")}


def find_coolers(roots: Roots) -> Readers[CoolerState]:
    """Cooling devices by their type: a fan, or what lowers a clock. State 0 does nothing."""

    def reader(folder: Path) -> Callable[[], CoolerState]:
        return lambda: CoolerState(
            state=read_number(folder / "cur_state"), highest=read_number(folder / "max_state")
        )

    return {name: reader(folder) for name, folder in _typed(roots.sys, "cooling_device*")}


def find_throttles(roots: Roots) -> Readers[ThrottleState]:
    """Counters of events that held the clocks down, since the boot."""

    def reader(file: Path) -> Callable[[], ThrottleState]:
        return lambda: ThrottleState(events=read_number(file))

    files = dict([*_over_current(roots.sys), *_thermal_throttle(roots.sys)])
    return {name: reader(file) for name, file in files.items()}


def read_all(part: str, readers: Readers[S], none: str) -> Reading[dict[str, S]]:
    """Every reading by name; ``none`` tells why there is no reader."""
    if not readers:
        return Reading({}, {part: none})
    found: dict[str, S] = {}
    why = {}
    for name, read in readers.items():
        try:
            found[name] = read()
        except UnreadableError as error:
            why[f"{part}.{name}"] = str(error)
    return Reading(found, why)


def _typed(sys: Path, pattern: str) -> list[tuple[str, Path]]:
    """Folders by their type; several of one type have their number behind it."""
    folders = sorted(
        (sys / "class/thermal").glob(pattern), key=lambda folder: (len(folder.name), folder.name)
    )
    types = {folder: read_text(folder / "type") or folder.name for folder in folders}
    count = Counter(types.values())
    seen: Counter[str] = Counter()
    named = []
    for folder, kind in types.items():
        named.append((kind if count[kind] == 1 else f"{kind}/{seen[kind]}", folder))
        seen[kind] += 1
    return named


def _over_current(sys: Path) -> Iterator[tuple[str, Path]]:
    for folder in sorted((sys / "class/hwmon").glob("hwmon*")):
        if read_text(folder / "name") == "soctherm_oc":
            for file in sorted(folder.glob("oc*_event_cnt")):
                event = file.name.partition("_")[0]
                yield f"soctherm {_OC_EVENTS.get(event, event)}", file


def _thermal_throttle(sys: Path) -> Iterator[tuple[str, Path]]:
    """Of the first core: the package's count stands at each of its cores."""
    folder = sys / "devices/system/cpu/cpu0/thermal_throttle"
    for kind in ("core", "package"):
        file = folder / f"{kind}_throttle_count"
        if file.is_file():
            yield f"cpu0 {kind}", file
