"""How fast processors and devices run, and how fast they may: cpufreq and devfreq.

https://docs.kernel.org/admin-guide/pm/cpufreq.html and
https://www.kernel.org/doc/Documentation/ABI/testing/sysfs-class-devfreq.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.resources.record import ClockState
from loadtest.resources.roots import Reading, Roots, UnreadableError, read_number, read_text

CPU, DEVICE = "cpu", "device"
"""What a clock is of; the first part of its name."""

_NONE = "no cpufreq and no devfreq: the kernel tells no clock, as in most virtual machines"


@dataclass(frozen=True)
class Clock:
    """Files of one clock; the limit is what may not be passed now, the rating what it can do.

    Attributes:
        unit_hz: what the numbers in the files count.
        rated_hz: ``None`` where the hardware does not tell.
    """

    name: str
    now: Path
    limit: Path
    unit_hz: float
    rated_hz: float | None

    def read(self) -> ClockState:
        """Raises UnreadableError."""
        return ClockState(
            hz=read_number(self.now) * self.unit_hz,
            limit_hz=read_number(self.limit) * self.unit_hz,
            rated_hz=self.rated_hz,
        )


def find_clocks(roots: Roots) -> list[Clock]:
    """``cpu:policy0`` of every group of cores, ``device:17000000.gpu`` of every device."""
    return [*_cpufreq(roots.sys), *_devfreq(roots.sys)]


def read_clocks(clocks: Sequence[Clock]) -> Reading[dict[str, ClockState]]:
    if not clocks:
        return Reading({}, {"clocks": _NONE})
    found, why = {}, {}
    for clock in clocks:
        try:
            found[clock.name] = clock.read()
        except UnreadableError as error:
            why[f"clocks.{clock.name}"] = str(error)
    return Reading(found, why)


def _cpufreq(sys: Path) -> Iterator[Clock]:
    """Kilohertz."""
    for folder in sorted((sys / "devices/system/cpu/cpufreq").glob("policy*")):
        yield Clock(
            f"{CPU}:{folder.name}",
            folder / "scaling_cur_freq",
            folder / "scaling_max_freq",
            1e3,
            _rated(read_text(folder / "cpuinfo_max_freq"), 1e3),
        )


def _devfreq(sys: Path) -> Iterator[Clock]:
    """Hertz. On a Jetson one of them is the GPU."""
    for folder in sorted((sys / "class/devfreq").glob("*")):
        yield Clock(
            f"{DEVICE}:{folder.name}",
            folder / "cur_freq",
            folder / "max_freq",
            1.0,
            _rated(read_text(folder / "available_frequencies"), 1.0),
        )


def _rated(text: str, unit_hz: float) -> float | None:
    """The highest of the numbers in a file."""
    steps = [int(word) for word in text.split() if word.isdecimal()]
    return max(steps) * unit_hz if steps else None
