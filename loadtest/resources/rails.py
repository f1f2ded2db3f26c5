"""Power rails: counters of energy, and meters of power that are summed up over time.

RAPL (https://docs.kernel.org/power/powercap/powercap.html), the INA3221 monitor of Jetson boards
(https://docs.kernel.org/hwmon/ina3221.html) and its older driver (L4T 32 and before). GPUs have
theirs in ``loadtest.resources.gpu``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from loadtest.resources.record import RailState
from loadtest.resources.roots import Reading, Roots, UnreadableError, read_number, read_text

RAPL, INA3221, NVML, TEGRASTATS = "rapl", "ina3221", "nvml", "tegrastats"
"""Where a rail is read; the first part of its name."""

_NOT_CONNECTED = "NC"
_SHORTEST_S = 0.5
"""For a mean power: counters move in steps, some ten times a second only."""


class Rail(Protocol):
    @property
    def name(self) -> str:
        """Where it is read, and its name there: ``rapl:package-0``, ``ina3221:VDD_IN``."""
        ...

    def read(self, now_s: float) -> RailState:
        """Raises UnreadableError."""
        ...


class CounterRail:
    """A rail whose energy the hardware counts.

    Args:
        joules: reads the counter.
        range_j: reads where the counter begins again at 0; ``None`` for one that does not.
    """

    def __init__(
        self, name: str, joules: Callable[[], float], range_j: Callable[[], float] | None = None
    ) -> None:
        self.name = name
        self._count, self._range = joules, range_j
        self._last: float | None = None
        self._joules = 0.0
        self._mean_from = (0.0, 0.0)
        self._watts: float | None = None

    def read(self, now_s: float) -> RailState:
        count = self._count()
        if self._last is None:
            self._mean_from = now_s, 0.0
        else:
            self._joules += self._gained(count, self._last)
        self._last = count
        from_s, from_j = self._mean_from
        if now_s - from_s >= _SHORTEST_S:
            self._watts = (self._joules - from_j) / (now_s - from_s)
            self._mean_from = now_s, self._joules
        return RailState(watts=self._watts, joules=self._joules)

    def _gained(self, count: float, last: float) -> float:
        if count >= last:
            return count - last
        return count - last + self._range() if self._range else count


class MeterRail:
    """A rail whose power is read; energy is its integral by the trapezoidal rule."""

    def __init__(self, name: str, watts: Callable[[], float]) -> None:
        self.name = name
        self._watts = watts
        self._last: tuple[float, float] | None = None
        self._joules = 0.0

    def read(self, now_s: float) -> RailState:
        watts = self._watts()
        if self._last:
            last_s, last = self._last
            self._joules += (now_s - last_s) * (watts + last) / 2
        self._last = now_s, watts
        return RailState(watts=watts, joules=self._joules)


class Rails:
    """All rails of this machine, in one reading."""

    def __init__(self, rails: Sequence[Rail]) -> None:
        self._rails = rails

    def read(self, now_s: float) -> Reading[dict[str, RailState]]:
        """By name; ``now_s`` is a monotonic clock's."""
        if not self._rails:
            return Reading({}, {"rails": "no RAPL, no INA3221, and no GPU that tells its power"})
        found, unmeasurable = {}, {}
        for rail in self._rails:
            try:
                found[rail.name] = rail.read(now_s)
            except UnreadableError as error:
                unmeasurable[f"rails.{rail.name}"] = str(error)
        return Reading(found, unmeasurable)


def find_rails(roots: Roots) -> list[Rail]:
    """Every rail below ``/sys``, readable or not."""
    return [*_rapl(roots.sys), *_ina3221(roots.sys), *_ina3221_before_hwmon(roots.sys)]


def _rapl(sys: Path) -> list[Rail]:
    """Zones ``intel-rapl:0`` and their parts ``intel-rapl:0:1``; AMD's have the same names.

    ``intel-rapl-mmio`` shows the same package once more and is left out.
    """
    folders = sorted((sys / "class/powercap").glob("intel-rapl:*"))
    names = {folder.name: read_text(folder / "name") for folder in folders}
    rails: list[Rail] = []
    for folder in folders:
        above = names.get(folder.name.rpartition(":")[0])
        name = f"{above}/{names[folder.name]}" if above else names[folder.name]
        rails.append(
            CounterRail(
                f"{RAPL}:{name}",
                _number(folder / "energy_uj", 1e-6),
                _number(folder / "max_energy_range_uj", 1e-6),
            )
        )
    return rails


def _ina3221(sys: Path) -> list[Rail]:
    rails: list[Rail] = []
    for folder in sorted((sys / "class/hwmon").glob("hwmon*")):
        if read_text(folder / "name") != INA3221:
            continue
        for channel in (1, 2, 3):  # from the fourth on they are sums of these
            label = read_text(folder / f"in{channel}_label")
            if label and label != _NOT_CONNECTED:
                volts = _number(folder / f"in{channel}_input", 1e-3)
                amperes = _number(folder / f"curr{channel}_input", 1e-3)
                rails.append(MeterRail(f"{INA3221}:{label}", _product(volts, amperes)))
    return rails


def _ina3221_before_hwmon(sys: Path) -> list[Rail]:
    rails: list[Rail] = []
    for file in sorted((sys / "bus/i2c/drivers/ina3221x").glob("*/iio:device*/rail_name_*")):
        channel = file.name.rpartition("_")[2]
        label = read_text(file)
        if label and label != _NOT_CONNECTED:
            watts = _number(file.with_name(f"in_power{channel}_input"), 1e-3)
            rails.append(MeterRail(f"{INA3221}:{label}", watts))
    return rails


def _product(volts: Callable[[], float], amperes: Callable[[], float]) -> Callable[[], float]:
    return lambda: volts() * amperes()


def _number(path: Path, unit: float) -> Callable[[], float]:
    return lambda: read_number(path) * unit
