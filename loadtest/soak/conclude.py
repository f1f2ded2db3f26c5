"""Cold against heat-soaked: ratios with their intervals, and the answer in one sentence. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from loadtest.energy_use import flight_time_lost_s, flight_time_s
from loadtest.explained import Start
from loadtest.resources.record import BoardRecord, ResourceUse
from loadtest.results import Histograms, Manifest, Trial
from loadtest.rounding import four_digits
from loadtest.scenarios import is_closed
from loadtest.significance import LEAST_REPEATS
from loadtest.soak.ratio import ratio_of
from loadtest.soak.record import (
    Asked,
    FlightLost,
    Ratio,
    SoakRecord,
    SoakVerdict,
    SoakWindow,
    Stretch,
)
from loadtest.soak.windows import (
    SHARE,
    first_of,
    last_of,
    stretch_of,
    tells_throttling,
    window_of,
)

CLOCK_FALL = 0.02
"""A mean clock that is lower by less than this is taken for the governor's play."""

NEGLIGIBLE = 0.05
"""An interval that reaches further than this cannot be called no loss."""

_GHZ = 1e9
_NO_POWER = "no rail that is the machine could be read"


@dataclass(frozen=True)
class Measured:
    """What lies in a soak's folder."""

    manifest: Manifest
    trials: Sequence[Trial]
    starts: Sequence[Start]
    read: Callable[[str], Histograms]


def conclude(measured: Measured, asked: Asked, board: BoardRecord) -> SoakRecord:
    """Everything that the page shows. Of an unfinished soak first and last fifth are compared."""
    trials = measured.trials
    began_unix_s = _began_unix_s(trials)
    windows = tuple(window_of(trial, measured.read(trial.id), began_unix_s) for trial in trials)
    measured_s = windows[-1].start_s + windows[-1].length_s if windows else 0.0
    complete = len(windows) >= measured.manifest.settings.repeats
    compare_s = asked.compare_s if complete else min(asked.compare_s, measured_s / SHARE)
    first, last = first_of(windows, compare_s), last_of(windows, compare_s)
    cold, soaked = (stretch_of(part) if part else None for part in (first, last))
    uses = [trial.resources for trial in trials if trial.resources is not None]
    throughput = _ratio(first, last, lambda one: one.inferences_per_s)
    p99 = _ratio(first, last, lambda one: one.p99_ms)
    closed = is_closed(measured.manifest.settings)
    verdict = verdict_of(throughput if closed else p99, lower_is_better=not closed)
    tells = tells_throttling(uses)
    found = _Found(cold, soaked, throughput, p99, verdict, closed, tells)
    sentence = sentence_of(found)
    modes = tuple(dict.fromkeys(mode for one in windows for mode in one.power_modes))
    if len(modes) > 1:
        sentence += f" The power mode changed meanwhile: {', then '.join(modes)}."
    if not complete:
        sentence = f"Interrupted after {clock_text(measured_s)}: {sentence}"
    return SoakRecord(
        manifest=measured.manifest,
        asked=asked,
        board=board,
        measured_s=measured_s,
        complete=complete,
        windows=windows,
        cold=cold,
        soaked=soaked,
        throughput=throughput,
        p99=p99,
        power=_ratio(first, last, lambda one: one.gauges.watts),
        verdict=verdict,
        sentence=sentence,
        tells_throttling=tells,
        power_modes=modes,
        flight=_flight(asked, soaked),
        starts=tuple(measured.starts),
        missing=dict(_missing(uses, soaked)),
    )


def _began_unix_s(trials: Sequence[Trial]) -> float:
    if not trials:
        return 0.0
    return (trials[0].window_started_unix_s or 0.0) - trials[0].warmup_s


def _ratio(
    first: Sequence[SoakWindow],
    last: Sequence[SoakWindow],
    value: Callable[[SoakWindow], float | None],
) -> Ratio | None:
    """``None`` unless every window that counts has such a value, above 0."""
    before, after = ([value(one) for one in part if one.counts] for part in (first, last))
    sides = [[one for one in side if one] for side in (before, after)]
    overlap = {one.trial for one in first} & {one.trial for one in last}
    if overlap or not all(sides) or [*map(len, sides)] != [len(before), len(after)]:
        return None
    return ratio_of(*sides)


def verdict_of(ratio: Ratio | None, *, lower_is_better: bool) -> SoakVerdict:
    if ratio is None:
        return "not comparable"
    if ratio.low is None or ratio.high is None:
        return "too few windows"
    if ratio.low <= 1 <= ratio.high:
        return "no significant difference"
    return "faded" if (ratio.high < 1) != lower_is_better else "grew"


@dataclass(frozen=True)
class _Found:
    cold: Stretch | None
    soaked: Stretch | None
    throughput: Ratio | None
    p99: Ratio | None
    verdict: SoakVerdict
    closed: bool
    tells: bool


def sentence_of(found: _Found) -> str:
    """Capacity cold and heat-soaked, or p99 where the load came at a given rate; and why."""
    ratio = found.throughput if found.closed else found.p99
    if ratio is None:
        return f"Beginning and end cannot be compared: {_why_not(found)}."
    what, unit = ("capacity", "/s") if found.closed else ("p99", " ms")
    both = f"cold {four_digits(ratio.before)}{unit}, heat-soaked {four_digits(ratio.after)}{unit}"
    if ratio.low is None or ratio.high is None:
        return (
            f"{_capital(what)} {both} ({ratio.ratio:.3g}); fewer than {LEAST_REPEATS} windows a "
            "side say nothing of chance."
        )
    interval = f"({ratio.ratio:.3f}, {ratio.low:.3f} to {ratio.high:.3f})"
    if found.verdict == "no significant difference":
        told = f"{what} {both} {interval}{_but(found)}{_not_excluded(ratio, found.closed)}"
        return f"No significant difference: {told}."
    return f"{_capital(what)} {both} {interval}{_cause(found)}."


def _capital(what: str) -> str:
    """``p99`` stays as it is written."""
    return what if what == "p99" else what.capitalize()


def _why_not(found: _Found) -> str:
    for name, stretch in (("beginning", found.cold), ("end", found.soaked)):
        if stretch is None:
            return f"no window was measured at its {name}"
        if not stretch.windows:
            return f"no window at its {name} says anything of the server"
    if not found.closed:
        return "its windows have too few requests for a p99"
    return "it was too short"


def _cause(found: _Found) -> str:
    """What told of throttling, or what else is known of why it became slower."""
    if found.verdict == "grew" or found.soaked is None:
        return ""
    if found.soaked.throttled:
        return f": throttled by {_listed(found.soaked.throttled)}{_already(found)}"
    if fallen := list(_fallen_clocks(found)):
        return f": clocks fell ({_listed(fallen)}), and nothing tells why"
    if not found.tells:
        return "; whether it throttled cannot be read here"
    return "; nothing told of throttling"


def _but(found: _Found) -> str:
    if found.soaked is None or not found.soaked.throttled:
        return ""
    return f", though throttled by {_listed(found.soaked.throttled)}{_already(found)}"


def _not_excluded(ratio: Ratio, closed: bool) -> str:
    """No difference that was found is not the same as none that there is."""
    assert ratio.low is not None
    assert ratio.high is not None
    loss = 1 - ratio.low if closed else ratio.high - 1
    word = "loss" if closed else "rise"
    return f"; a {word} of {loss:.0%} is not excluded" if loss > NEGLIGIBLE else ""


def _already(found: _Found) -> str:
    both = found.cold and found.soaked and set(found.soaked.throttled) <= set(found.cold.throttled)
    return ", from the beginning on" if both else ""


def _fallen_clocks(found: _Found) -> Iterator[str]:
    assert found.cold is not None
    assert found.soaked is not None
    before, after = found.cold.gauges.clocks, found.soaked.gauges.clocks
    for name, hz in before.items():
        if name in after and after[name] < (1 - CLOCK_FALL) * hz:
            yield f"{name} {hz / _GHZ:.2f} to {after[name] / _GHZ:.2f} GHz"


def _listed(names: Sequence[str]) -> str:
    *others, last = names
    return f"{', '.join(others)} and {last}" if others else last


def _flight(asked: Asked, soaked: Stretch | None) -> FlightLost | None:
    if asked.flight is None or soaked is None or soaked.gauges.watts is None:
        return None
    flight, watts = asked.flight, soaked.gauges.watts
    return FlightLost(
        flight=flight,
        device_w=watts,
        flight_s=flight_time_s(flight.battery_wh, flight.hover_w),
        lost_s=flight_time_lost_s(flight.hover_w, flight.battery_wh, watts),
    )


def _missing(uses: Sequence[ResourceUse], soaked: Stretch | None) -> Iterator[tuple[str, str]]:
    """In words of the last window, which had every reading that any had."""
    if not uses:
        yield "resources", "nothing was sampled"
        return
    parts = ("clocks", "zones", "coolers", "throttles", "rails", "gpus", "memory", "power_mode")
    told = uses[-1].unmeasurable
    for what, why in told.items():
        if what == "energy" and why == told.get("rails"):
            continue
        if what.startswith("gpus.") and what.count(".") > 1:
            continue
        if what.partition(".")[0] in (*parts, "energy"):
            yield what, why
    if soaked is not None and soaked.gauges.watts is None and "energy" not in told:
        yield "energy", _NO_POWER
    idle_w = soaked.idle_w if soaked else None
    if soaked is not None and idle_w is not None and soaked.efficiency.net_per_joule is None:
        yield "energy net of idle", f"the load drew no more than the {idle_w:.4g} W before it"


def moment_text(seconds: float) -> str:
    """Minutes and seconds, ``44:30``."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02d}"


def clock_text(seconds: float) -> str:
    """``45 min``, ``90 s``, ``1 h 05 min``."""
    minutes = round(seconds / 60)
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60:02d} min"
