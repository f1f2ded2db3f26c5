"""From samples to what one window used. Pure.

Counters are interpolated linearly at the window's edges, so a window need not begin at a sample.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from loadtest.resources.energy import whole
from loadtest.resources.record import (
    ClockUse,
    CoolerUse,
    CoreUse,
    Energy,
    Gauge,
    GpuUse,
    InterfaceUse,
    MemoryUse,
    RailUse,
    ResourceUse,
    RoleState,
    RoleUse,
    Sample,
)

_TOO_FEW = "fewer than two readings around the window"
_STANDS_STILL = "its counter stands still"
_UNKNOWN_WHOLE = "it is not known which of these rails make up the machine"

_OF_DEVICE = ("gpus", "clocks", "zones", "coolers", "throttles", "memory", "power_mode")
"""Parts that are not in every sample, the GPU of a board among them."""

_AGES = {
    "pss_bytes": "pss_age_s",
    "voluntary_switches": "switches_age_s",
    "involuntary_switches": "switches_age_s",
}

Series = Sequence[tuple[float, float]]
"""Times and values, by rising time."""


def cut_out(series: Series, start_s: float, end_s: float) -> list[tuple[float, float]] | None:
    """The part from ``start_s`` to ``end_s``, with interpolated values at both.

    ``None`` unless the series reaches from one to the other.
    """
    if len(series) < 2 or series[0][0] > start_s or series[-1][0] < end_s:
        return None
    inside = [point for point in series if start_s < point[0] < end_s]
    return [(start_s, _at(series, start_s)), *inside, (end_s, _at(series, end_s))]


def _at(series: Series, time_s: float) -> float:
    after = min(max(bisect_right(series, time_s, key=lambda point: point[0]), 1), len(series) - 1)
    (t0, v0), (t1, v1) = series[after - 1], series[after]
    return v0 + (v1 - v0) * (time_s - t0) / (t1 - t0)


def _monotonic_s(samples: Sequence[Sample], unix_s: float) -> float:
    """The same moment on the clock that is never set; it lies between two samples or at one."""
    after = bisect_left(samples, unix_s, key=lambda sample: sample.unix_s)
    if samples[after].unix_s == unix_s:
        return samples[after].monotonic_s
    clocks = [(s.unix_s, s.monotonic_s) for s in samples[after - 1 : after + 1]]
    return min(_at(clocks, unix_s), samples[after].monotonic_s)


def use_over(
    samples: Sequence[Sample],
    start_unix_s: float,
    end_unix_s: float,
    *,
    inferences: int,
    idle_watts: Mapping[str, float],
) -> ResourceUse:
    """What the window used.

    ``samples`` are by rising time, from before the window until after it; ``inferences`` are its
    right answers, in rows; ``idle_watts`` the mean power of each rail before the first server.
    """
    times = [sample.unix_s for sample in samples]
    first, last = bisect_right(times, start_unix_s) - 1, bisect_left(times, end_unix_s)
    if first < 0 or last >= len(samples) or start_unix_s >= end_unix_s:
        length_s = end_unix_s - start_unix_s
        return ResourceUse(window_s=length_s, samples=0, unmeasurable={"resources": _TOO_FEW})
    around = samples[first : last + 1]
    window = _Window(
        samples,
        around,
        _monotonic_s(samples, start_unix_s),
        _monotonic_s(samples, end_unix_s),
        visit=samples[bisect_right(times, end_unix_s) - 1].since_unix_s,
        told=_told(samples, around),
    )
    rails = window.rails()
    return ResourceUse(
        window_s=window.end_s - window.start_s,
        samples=sum(start_unix_s <= sample.unix_s <= end_unix_s for sample in around),
        roles={role: window.role(role) for role in window.names("roles")},
        cores=window.cores(),
        network=window.network(),
        gpus={gpu: window.gpu(gpu) for gpu in window.names("gpus")},
        rails=rails,
        energy=window.energy(rails, inferences, idle_watts),
        clocks=window.clocks(),
        zones=window.zones(),
        coolers=window.coolers(),
        throttles=window.throttles(),
        memory=window.memory(),
        power_modes=window.power_modes(),
        sampling_cores=window.rate("sampling_cpu_s"),
        unmeasurable=window.unmeasurable(),
    )


def _told(samples: Sequence[Sample], around: Sequence[Sample]) -> dict[str, str]:
    """What the samples call unmeasurable; of the device also those further away."""
    far = {
        what: why
        for sample in samples
        for what, why in sample.unmeasurable.items()
        if what.partition(".")[0] in _OF_DEVICE
    }
    return far | {what: why for sample in around for what, why in sample.unmeasurable.items()}


@dataclass
class _Window:
    """One stretch of the monotonic clock, and the samples that tell of it.

    A figure is named by its path in a sample, as in ``roles.server.cpu_s``; so is what cannot be
    measured, or by the beginning of that path.

    Attributes:
        samples: also from long before and after, for what is read seldom.
        around: from the last one before the window to the first one after it.
        visit: counters of roles are comparable while the same server is watched.
        told: what the samples themselves call unmeasurable.
    """

    samples: Sequence[Sample]
    around: Sequence[Sample]
    start_s: float
    end_s: float
    visit: float | None
    told: dict[str, str]
    _found: set[str] = field(default_factory=set)
    _lacking: dict[str, str] = field(default_factory=dict)

    def names(self, part: str) -> list[str]:
        samples = self.samples if part in _OF_DEVICE else self.around
        return list(dict.fromkeys(name for s in samples for name in getattr(s, part)))

    def rate(self, *path: str) -> float | None:
        """Growth of a counter per second."""
        readings = self._readings(path)
        if readings is None:
            return None
        return (readings[-1][1] - readings[0][1]) / (self.end_s - self.start_s)

    def gauge(self, *path: str) -> Gauge | None:
        readings = self._readings(path)
        if readings is None:
            return None
        area = sum((t1 - t0) * (v0 + v1) / 2 for (t0, v0), (t1, v1) in pairwise(readings))
        values = [value for _, value in readings]
        mean = area / (self.end_s - self.start_s)
        return Gauge(mean=mean, lowest=min(values), highest=max(values))

    def peak(self, *path: str) -> int | None:
        gauge = self.gauge(*path)
        return None if gauge is None else round(gauge.highest)

    def role(self, role: str) -> RoleUse:
        here = ("roles", role)
        return RoleUse(
            cpu_cores=self.rate(*here, "cpu_s"),
            rss_peak_bytes=self.peak(*here, "rss_bytes"),
            pss_peak_bytes=self.peak(*here, "pss_bytes"),
            voluntary_switches_per_s=self.rate(*here, "voluntary_switches"),
            involuntary_switches_per_s=self.rate(*here, "involuntary_switches"),
            processes_peak=self.peak(*here, "processes"),
            threads_peak=self.peak(*here, "threads"),
        )

    def cores(self) -> dict[str, CoreUse]:
        found = {}
        for core in self.names("cores"):
            busy = self.rate("cores", core, "busy_s")
            stolen = self.rate("cores", core, "stolen_s")
            if busy is not None and stolen is not None:
                found[core] = CoreUse(busy=busy, stolen=stolen)
        return found

    def network(self) -> dict[str, InterfaceUse]:
        found = {}
        for name in self.names("network"):
            received = self.rate("network", name, "receive_bytes")
            sent = self.rate("network", name, "transmit_bytes")
            if received is not None and sent is not None:
                found[name] = InterfaceUse(receive_bytes_per_s=received, transmit_bytes_per_s=sent)
        return found

    def gpu(self, gpu: str) -> GpuUse:
        gauges = {
            name: self.gauge("gpus", gpu, name)
            for name in GpuUse.model_fields
            if name != "throttled"
        }
        return GpuUse(**gauges, throttled=self._throttled(gpu))

    def _throttled(self, gpu: str) -> tuple[str, ...] | None:
        seen = [s.gpus[gpu].throttled for s in self.around if gpu in s.gpus]
        known = [reasons for reasons in seen if reasons is not None]
        if not known:
            return None
        self._found.add(f"gpus.{gpu}.throttled")
        return tuple(dict.fromkeys(reason for reasons in known for reason in reasons))

    def clocks(self) -> dict[str, ClockUse]:
        found = {}
        for name in self.names("clocks"):
            hz = self.gauge("clocks", name, "hz")
            limit_hz = self.gauge("clocks", name, "limit_hz")
            if hz is not None and limit_hz is not None:
                rated = [s.clocks[name].rated_hz for s in self.samples if name in s.clocks]
                found[name] = ClockUse(hz=hz, limit_hz=limit_hz, rated_hz=rated[-1])
        return found

    def zones(self) -> dict[str, Gauge]:
        found = {name: self.gauge("zones", name, "celsius") for name in self.names("zones")}
        return {name: gauge for name, gauge in found.items() if gauge is not None}

    def coolers(self) -> dict[str, CoolerUse]:
        found = {}
        for name in self.names("coolers"):
            state = self.gauge("coolers", name, "state")
            if state is not None:
                highest = max(s.coolers[name].highest for s in self.samples if name in s.coolers)
                found[name] = CoolerUse(state=state, highest=highest)
        return found

    def throttles(self) -> dict[str, float]:
        rates = {name: self.rate("throttles", name, "events") for name in self.names("throttles")}
        length_s = self.end_s - self.start_s
        return {name: rate * length_s for name, rate in rates.items() if rate is not None}

    def memory(self) -> MemoryUse | None:
        total_bytes = [s.memory.total_bytes for s in self.samples if s.memory is not None]
        if not total_bytes:
            return None
        available = self.gauge("memory", "available_bytes")
        if available is None:
            return None
        told = any(s.memory is not None and s.memory.gpu_bytes is not None for s in self.samples)
        gpu = self.gauge("memory", "gpu_bytes") if told else None
        return MemoryUse(total_bytes=total_bytes[-1], available_bytes=available, gpu_bytes=gpu)

    def power_modes(self) -> tuple[str, ...]:
        """Those of the window; where nothing was read in it, the last one before."""
        inside = [s.power_mode for s in self.around if s.power_mode is not None]
        if not inside:
            earlier = [s for s in self.samples if s.monotonic_s <= self.start_s]
            inside = [s.power_mode for s in earlier if s.power_mode is not None][-1:]
        return tuple(dict.fromkeys(inside))

    def rails(self) -> dict[str, RailUse]:
        watts = {rail: self.rate("rails", rail, "joules") for rail in self.names("rails")}
        length_s = self.end_s - self.start_s
        return {
            rail: RailUse(watts=mean, joules=mean * length_s)
            for rail, mean in watts.items()
            if mean is not None
        }

    def energy(
        self, rails: Mapping[str, RailUse], inferences: int, idle_watts: Mapping[str, float]
    ) -> Energy | None:
        unread = {what.partition(".")[2] for what in self.told if what.startswith("rails.")}
        chosen = whole({*rails, *unread})
        missing = {rail: why for rail in chosen if (why := self._why_missing(rails, rail))}
        added = tuple(rail for rail in chosen if rail not in missing)
        if not added:
            no_rail = self.told.get("rails") or (None if chosen else _UNKNOWN_WHOLE)
            self._lacking["energy"] = no_rail or "; ".join(f"{r}: {w}" for r, w in missing.items())
            return None
        joules = sum(rails[rail].joules for rail in added)
        idle = sum(idle_watts[r] for r in added) if idle_watts.keys() >= set(added) else None
        return Energy(
            rails=added,
            missing=missing,
            joules=joules,
            joules_per_inference=self._per_inference(joules, inferences),
            idle_watts=idle,
            net_joules_per_inference=self._net(joules, inferences, idle),
        )

    def _why_missing(self, rails: Mapping[str, RailUse], rail: str) -> str:
        """Empty for a rail that was measured. A machine that runs uses some power."""
        if rail not in rails:
            return self.told.get(f"rails.{rail}", _TOO_FEW)
        return "" if rails[rail].joules > 0 else _STANDS_STILL

    def _per_inference(self, joules: float, inferences: int) -> float | None:
        if inferences:
            return joules / inferences
        self._lacking["energy.joules_per_inference"] = "no right answer in the window"
        return None

    def _net(self, joules: float, inferences: int, idle_watts: float | None) -> float | None:
        if idle_watts is None:
            self._lacking["energy.idle_watts"] = "not measured before the first server"
            return None
        return self._per_inference(joules - idle_watts * (self.end_s - self.start_s), inferences)

    def unmeasurable(self) -> dict[str, str]:
        """What was told or found lacking, but for figures that could be made all the same."""
        told = {w: why for w, why in self.told.items() if not self._is_found(w)}
        return told | self._lacking

    def _is_found(self, what: str) -> bool:
        return any(path == what or path.startswith(f"{what}.") for path in self._found)

    def _readings(self, path: Iterable[str]) -> list[tuple[float, float]] | None:
        path = tuple(path)
        values = [(s.monotonic_s, self._value(s, path)) for s in self.samples]
        known = [(time_s, value) for time_s, value in values if value is not None]
        readings = cut_out(known, self.start_s, self.end_s)
        what = ".".join(path)
        if readings is not None:
            self._found.add(what)
        elif not any(f"{what}.".startswith(f"{told}.") for told in self.told):
            self._lacking[what] = _TOO_FEW
        return readings

    def _value(self, sample: Sample, path: tuple[str, ...]) -> float | None:
        if len(path) == 1:
            value = getattr(sample, path[0])
        elif len(path) == 2:
            value = getattr(getattr(sample, path[0]), path[1], None)
        else:
            part, name, figure = path
            holder = getattr(sample, part).get(name)
            value = getattr(holder, figure, None)
            if part == "roles" and (sample.since_unix_s != self.visit or _is_old(holder, figure)):
                return None
        return None if value is None else float(value)


def _is_old(role: RoleState | None, figure: str) -> bool:
    """Whether the sample repeats an earlier reading."""
    age = _AGES.get(figure)
    return bool(age and role and getattr(role, age))
