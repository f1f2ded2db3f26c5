"""From trials to the windows of a soak, and which of them are its beginning and its end. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from loadtest.analysis import samples_of
from loadtest.energy_use import inferences_per_joule, per_watt_hour
from loadtest.resources.record import ResourceUse
from loadtest.results import Histograms, Trial
from loadtest.soak.record import Efficiency, Gauges, SoakWindow, Stretch
from loadtest.validity import cause_of

DEFAULT_COMPARE_S = 300.0
SHARE = 5
"""A soak that is too short for two times five minutes compares its first and last fifth."""

WINDOWS_PER_STRETCH = 10
SHORTEST_S, LONGEST_S = 1.0, 30.0
_NS_PER_MS = 1e6
_NO_THROTTLING = ("fan", "tcc offset")
"""Types of cooling devices that take no speed away, and an offset that is set by hand."""


def compare_length_s(duration_s: float) -> float:
    """Five minutes, or a fifth of what is shorter than 25."""
    return min(DEFAULT_COMPARE_S, duration_s / SHARE)


def window_length_s(compare_s: float) -> float:
    """So that a stretch has some ten windows, each of 1 to 30 s."""
    return min(max(compare_s / WINDOWS_PER_STRETCH, SHORTEST_S), LONGEST_S)


def window_of(trial: Trial, histograms: Histograms, began_unix_s: float) -> SoakWindow:
    """``began_unix_s`` is when the load began, before the first warm-up.

    A window that was not steady counts: a device that fades is not steady. One with wrong answers,
    or that measured the generator, says nothing of the server.
    """
    use = trial.resources
    samples = samples_of(histograms.response_time, trial.outcomes["not_sent"])
    p99 = samples.percentile(0.99)
    rate = trial.outcomes["ok"] / trial.window_s * trial.rows_per_request
    return SoakWindow(
        trial=trial.id,
        start_s=(trial.window_started_unix_s or began_unix_s) - began_unix_s,
        length_s=trial.window_s,
        inferences_per_s=rate,
        p99_ms=None if p99 is None else p99.value / _NS_PER_MS,
        gauges=gauges_of(use, trial.server_rss_bytes),
        throttled=tuple(throttle_signs(use)) if use else (),
        power_modes=use.power_modes if use else (),
        idle_w=use.energy.idle_watts if use and use.energy else None,
        verdict=trial.verdict,
        reasons=trial.reasons,
        counts=rate > 0 and not any(cause_of(reason) == "beside" for reason in trial.reasons),
    )


def gauges_of(use: ResourceUse | None, server_rss_bytes: int | None) -> Gauges:
    if use is None:
        return Gauges(server_rss_bytes=server_rss_bytes)
    celsius = {name: zone.mean for name, zone in use.zones.items()}
    celsius |= {n: g.temperature_celsius.mean for n, g in use.gpus.items() if g.temperature_celsius}
    clocks = {name: clock.hz.mean for name, clock in use.clocks.items()}
    clocks |= {
        n: g.sm_clock_hz.mean
        for n, g in use.gpus.items()
        if g.sm_clock_hz and f"device:{n}" not in clocks
    }
    memory = use.memory
    return Gauges(
        watts=use.energy.joules / use.window_s if use.energy else None,
        rails={name: rail.watts for name, rail in use.rails.items()},
        clocks=clocks,
        limits={name: clock.limit_hz.mean for name, clock in use.clocks.items()},
        celsius=celsius,
        gpu_busy={n: g.utilisation.mean for n, g in use.gpus.items() if g.utilisation},
        available_bytes=memory.available_bytes.mean if memory else None,
        gpu_bytes=memory.gpu_bytes.mean if memory and memory.gpu_bytes else None,
        server_rss_bytes=server_rss_bytes,
    )


def throttle_signs(use: ResourceUse) -> Iterator[str]:
    """Whatever says by itself that clocks were held down in the window."""
    for name, gpu in use.gpus.items():
        for reason in gpu.throttled or ():
            yield f"{name} {reason}"
    for name, cooler in use.coolers.items():
        harmless = any(word in name.lower() for word in _NO_THROTTLING)
        if cooler.state.highest > 0 and not harmless:
            yield f"cooling device {name}"
    for name, events in use.throttles.items():
        if events > 0:
            yield f"{name} events"


def tells_throttling(uses: Sequence[ResourceUse]) -> bool:
    """Whether anything here would have told of throttling, had there been any."""
    told = any(use.coolers or use.throttles for use in uses)
    return told or any(gpu.throttled is not None for use in uses for gpu in use.gpus.values())


def first_of(windows: Sequence[SoakWindow], compare_s: float) -> list[SoakWindow]:
    """Windows whose middle lies in the first ``compare_s`` of the load."""
    return [one for one in windows if _middle_s(one) <= compare_s]


def last_of(windows: Sequence[SoakWindow], compare_s: float) -> list[SoakWindow]:
    """Windows whose middle lies in the last ``compare_s``."""
    if not windows:
        return []
    end_s = windows[-1].start_s + windows[-1].length_s
    return [one for one in windows if _middle_s(one) >= end_s - compare_s]


def _middle_s(window: SoakWindow) -> float:
    return window.start_s + window.length_s / 2


def stretch_of(windows: Sequence[SoakWindow]) -> Stretch:
    """Several windows in a row as one; gauges are means of them all."""
    counted = [one for one in windows if one.counts]
    rate = _geometric([one.inferences_per_s for one in counted])
    p99s = [one.p99_ms for one in counted if one.p99_ms is not None]
    gauges = _mean_gauges(windows)
    idle_w = next((one.idle_w for one in windows if one.idle_w is not None), None)
    return Stretch(
        start_s=windows[0].start_s,
        end_s=windows[-1].start_s + windows[-1].length_s,
        windows=len(counted),
        left_out=len(windows) - len(counted),
        inferences_per_s=rate,
        p99_ms=_geometric(p99s) if len(p99s) == len(counted) else None,
        gauges=gauges,
        idle_w=idle_w,
        throttled=tuple(dict.fromkeys(sign for one in windows for sign in one.throttled)),
        efficiency=efficiency_of(rate, gauges.watts, idle_w),
    )


def efficiency_of(rate: float | None, watts: float | None, idle_w: float | None) -> Efficiency:
    gross = None if rate is None or not watts else inferences_per_joule(rate, watts)
    net = None
    if rate is not None and watts and idle_w is not None:
        net = inferences_per_joule(rate, watts, idle_w)
    return Efficiency(
        gross_per_joule=gross,
        net_per_joule=net,
        gross_per_wh=per_watt_hour(gross),
        net_per_wh=per_watt_hour(net),
    )


def _mean_gauges(windows: Sequence[SoakWindow]) -> Gauges:
    each = [one.gauges for one in windows]

    def by_name(field: str) -> dict[str, float]:
        held: list[Mapping[str, float]] = [getattr(one, field) for one in each]
        names = dict.fromkeys(name for values in held for name in values)
        return {n: _mean([values[n] for values in held if n in values]) or 0.0 for n in names}

    def alone(field: str) -> float | None:
        values = [getattr(one, field) for one in each]
        return _mean([value for value in values if value is not None])

    maps = {n: by_name(n) for n in ("rails", "clocks", "limits", "celsius", "gpu_busy")}
    single = {n: alone(n) for n in ("watts", "available_bytes", "gpu_bytes", "server_rss_bytes")}
    return Gauges.model_validate({**maps, **single})


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _geometric(values: Sequence[float]) -> float | None:
    """The middle that a ratio of significance is of."""
    return math.exp(sum(map(math.log, values)) / len(values)) if values else None
