"""``soak.html``: a soak on one page that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from loadtest.folder import ResultsFolder
from loadtest.report import numbers
from loadtest.report.answer import Answer
from loadtest.report.templates import Figure, figure_of, template
from loadtest.rounding import four_digits
from loadtest.soak.conclude import clock_text, moment_text
from loadtest.soak.figures import course_figure, described
from loadtest.soak.record import Ratio, SoakRecord, SoakVerdict, Stretch

NAME = "soak.html"
_TEMPLATE = Path(__file__).with_name("soak.html.j2")
_GHZ = 1e9
_ANSWERS: dict[SoakVerdict, Answer] = {
    "faded": Answer("none", "Fades when hot"),
    "no significant difference": Answer("open", "No significant difference"),
    "grew": Answer("open", "Faster at the end"),
    "too few windows": Answer("open", "Too few windows"),
    "not comparable": Answer("open", "Not comparable"),
}


class Line(NamedTuple):
    """One figure cold and heat-soaked; ``change`` has the interval where there is one."""

    name: str
    cold: str
    soaked: str
    change: str


def write_page(folder: ResultsFolder, record: SoakRecord) -> Path:
    """Write the page beside what it is made from, whole or not at all; returns its path."""
    return folder.write_page(NAME, render(record))


def render(record: SoakRecord) -> str:
    """The page; whatever a user may have written is escaped."""
    page: str = template(_TEMPLATE).render(
        record=record,
        manifest=record.manifest,
        settings=record.manifest.settings,
        answer=_ANSWERS[record.verdict],
        lines=tuple(_lines(record)),
        figure=_figure(record),
        clock_text=clock_text,
        moment_text=moment_text,
        four_digits=four_digits,
        n=numbers,
    )
    return page


def _figure(record: SoakRecord) -> Figure | None:
    if not record.windows:
        return None
    return figure_of(
        "course",
        "Throughput and sensors",
        "One point per window. The shaded stretches are compared. A hollow point says nothing of "
        "the server, and is left out.",
        described(record),
        course_figure(record),
    )


def _lines(record: SoakRecord) -> Iterator[Line]:
    cold, soaked = record.cold, record.soaked
    if cold is None or soaked is None:
        return
    yield _line(
        "throughput (inferences/s)",
        cold.inferences_per_s,
        soaked.inferences_per_s,
        record.throughput,
    )
    yield _line("p99 (ms)", cold.p99_ms, soaked.p99_ms, record.p99)
    for name in dict.fromkeys([*cold.gauges.celsius, *soaked.gauges.celsius]):
        yield _temperature(name, cold.gauges.celsius.get(name), soaked.gauges.celsius.get(name))
    for field, unit, scale in (
        ("clocks", "GHz", 1 / _GHZ),
        ("limits", "GHz, limit", 1 / _GHZ),
        ("rails", "W", 1.0),
        ("gpu_busy", "busy, 0 to 1", 1.0),
    ):
        before, after = getattr(cold.gauges, field), getattr(soaked.gauges, field)
        for name in dict.fromkeys([*before, *after]):
            yield _line(f"{name} ({unit})", before.get(name), after.get(name), None, scale)
    yield _line("power of the machine (W)", cold.gauges.watts, soaked.gauges.watts, record.power)
    if soaked.idle_w is not None:
        yield Line("power before the server (W)", four_digits(soaked.idle_w), "", "")
    yield from _memory(cold, soaked)
    yield from _efficiency(cold, soaked)
    yield Line("throttled by", _signs(cold, record), _signs(soaked, record), "")


def _memory(cold: Stretch, soaked: Stretch) -> Iterator[Line]:
    for field, name in (
        ("server_rss_bytes", "memory of the server's processes (RSS)"),
        ("available_bytes", "memory that is available, of the board"),
        ("gpu_bytes", "memory that the GPU holds, of the same"),
    ):
        before, after = getattr(cold.gauges, field), getattr(soaked.gauges, field)
        if before is not None or after is not None:
            yield Line(name, numbers.size(before), numbers.size(after), "")


def _efficiency(cold: Stretch, soaked: Stretch) -> Iterator[Line]:
    for field, name in (
        ("gross_per_joule", "inferences per joule"),
        ("net_per_joule", "inferences per joule, net of idle"),
        ("gross_per_wh", "inferences per watt-hour"),
        ("net_per_wh", "inferences per watt-hour, net of idle"),
    ):
        before, after = getattr(cold.efficiency, field), getattr(soaked.efficiency, field)
        if before is not None or after is not None:
            yield _line(name, before, after, None)


def _line(
    name: str, cold: float | None, soaked: float | None, ratio: Ratio | None, scale: float = 1.0
) -> Line:
    return Line(name, _number(cold, scale), _number(soaked, scale), _change(cold, soaked, ratio))


def _number(value: float | None, scale: float) -> str:
    return numbers.MISSING if value is None else four_digits(value * scale)


def _change(cold: float | None, soaked: float | None, ratio: Ratio | None) -> str:
    """With the interval, where there is one for each window; the bare ratio elsewhere."""
    if ratio is not None and ratio.low is not None and ratio.high is not None:
        return f"{ratio.ratio:.3f} ({ratio.low:.3f} to {ratio.high:.3f})"
    return f"{soaked / cold:.3f}" if cold and soaked is not None else numbers.MISSING


def _temperature(name: str, cold: float | None, soaked: float | None) -> Line:
    """A ratio of degrees Celsius means nothing."""
    both = cold is not None and soaked is not None
    rise = f"{(soaked or 0) - (cold or 0):+.1f} °C" if both else numbers.MISSING
    return Line(f"{name} (°C)", _number(cold, 1.0), _number(soaked, 1.0), rise)


def _signs(stretch: Stretch, record: SoakRecord) -> str:
    nothing = "nothing" if record.tells_throttling else "cannot be read"
    return ", ".join(stretch.throttled) or nothing
