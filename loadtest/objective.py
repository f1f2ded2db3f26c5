"""What must hold at a rate, as ``p99<=50ms and memory<=400MB``: read, held against a trial. Pure.

A percentile meets its objective by the upper 99% bound, not by its value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from loadtest.analysis import PERCENTILES
from loadtest.confidence import Samples, sample_floor
from loadtest.resources.sampler import SERVER
from loadtest.results import Trial
from loadtest.validity import FAILURE_LIMIT
from serving.errors import UsageError

State = Literal["met", "missed", "unknown"]

_TIMES_NS = {"us": 1e3, "ms": 1e6, "s": 1e9}
_DECIMAL_BYTES = {"B": 1.0, "kB": 1e3, "MB": 1e6, "GB": 1e9}
_BINARY_BYTES = {"KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
_SHARES = {"%": 0.01, "": 1.0}
_ENERGIES_J = {"mJ": 1e-3, "J": 1.0, "kJ": 1e3}

_UNITS: Mapping[str, Mapping[str, float]] = {
    **dict.fromkeys(PERCENTILES, _TIMES_NS),
    "errors": _SHARES,
    "memory": {**_DECIMAL_BYTES, **_BINARY_BYTES},
    "joules": _ENERGIES_J,
}
EXAMPLE = "p99<=50ms and memory<=400MB"
_HINT = f"Measures: {', '.join(_UNITS)}. Write for example '{EXAMPLE}'."
_FORM = re.compile(r"([a-z][a-z0-9.]*)\s*<=?\s*([-+]?[0-9.]+(?:e[-+]?[0-9]+)?)\s*([a-z%]*)", re.I)
_BETWEEN = re.compile(r"\s+and\s+|,", re.I)


@dataclass(frozen=True)
class Evidence:
    """A trial and its response times."""

    trial: Trial
    samples: Samples


@dataclass(frozen=True)
class Percentile:
    """An upper bound on a percentile of the response time."""

    name: str
    quantile: float
    limit_ns: int

    @property
    def text(self) -> str:
        return f"{self.name}<={self.limit_ns / 1e6:.12g}ms"

    def hold(self, seen: Evidence) -> Finding:
        """By the bound of independent samples, which is that of ``loadtest.early_stop`` as well.

        How much slow requests come together cannot be told from a few seconds: bounds widened by
        it scatter so much that two searches on one server differ by a third (docs/verdicts.md).
        """
        found = seen.samples.percentile(self.quantile, independent=True)
        if found is None:
            floor = sample_floor(self.quantile)
            told = f"{self.name} needs {floor:,} requests, the window had {seen.samples.count:,}"
            return Finding(self, "unknown", told)
        least = "at least " if found.at_least else ""
        high = "no bound" if found.high is None else _milliseconds(found.high)
        value, low = _milliseconds(found.value), _milliseconds(found.low)
        told = f"{self.name} {least}{value} ms ({low} to {high})"
        met = found.high is not None and found.high <= self.limit_ns
        return Finding(self, "met" if met else "missed", told)


@dataclass(frozen=True)
class Errors:
    """An upper bound on the share of due requests that got no right answer."""

    limit_share: float
    name: str = "errors"

    @property
    def text(self) -> str:
        return f"errors<={self.limit_share * 100:.12g}%"

    def hold(self, seen: Evidence) -> Finding:
        trial = seen.trial
        failed = trial.failed
        told = f"{failed:,} of {trial.planned:,} requests got no right answer"
        return Finding(self, _state(failed, self.limit_share * trial.planned), told)


@dataclass(frozen=True)
class Memory:
    """An upper bound on the largest memory of the server's processes together."""

    limit_bytes: float
    name: str = "memory"

    @property
    def text(self) -> str:
        return f"memory<={self.limit_bytes / 1e6:.12g}MB"

    def hold(self, seen: Evidence) -> Finding:
        """By PSS, in which shared pages are divided; by RSS where that cannot be read."""
        use = seen.trial.resources
        server = use.roles.get(SERVER) if use else None
        kind, peak = "PSS", server.pss_peak_bytes if server else None
        if peak is None and server:
            kind, peak = "RSS, shared pages counted in each process", server.rss_peak_bytes
        if peak is None:
            why = _why(seen.trial, f"roles.{SERVER}")
            return Finding(self, "unknown", f"memory could not be measured: {why}")
        told = f"memory {peak / 1e6:,.1f} MB ({kind})"
        return Finding(self, _state(peak, self.limit_bytes), told)


@dataclass(frozen=True)
class Joules:
    """An upper bound on the machine's energy per inference. A higher rate lowers it."""

    limit_j: float
    name: str = "joules"

    @property
    def text(self) -> str:
        return f"joules<={self.limit_j:.12g}J"

    def hold(self, seen: Evidence) -> Finding:
        trial = seen.trial
        energy = trial.resources.energy if trial.resources else None
        if energy is None or energy.missing or energy.joules_per_inference is None:
            missing = dict(energy.missing) if energy else {}
            why = next(iter(missing.values()), "") or _why(trial, "energy")
            return Finding(self, "unknown", f"energy could not be measured: {why}")
        spent_j = energy.joules_per_inference
        told = f"{spent_j:.3g} J per inference ({', '.join(energy.rails)})"
        return Finding(self, _state(spent_j, self.limit_j), told)


Objective = Percentile | Errors | Memory | Joules


@dataclass(frozen=True)
class Finding:
    """One objective held against one trial.

    Attributes:
        told: what was measured, or why it is unknown.
    """

    objective: Objective
    state: State
    told: str


@dataclass(frozen=True)
class Objectives:
    """All of them must be met; at least one is a percentile, which too high a rate breaks."""

    each: tuple[Objective, ...]

    @property
    def percentiles(self) -> tuple[Percentile, ...]:
        return tuple(one for one in self.each if isinstance(one, Percentile))

    @property
    def error_share(self) -> float:
        """The share that may fail; without an objective that which makes a window INVALID."""
        return min([FAILURE_LIMIT, *(o.limit_share for o in self.each if isinstance(o, Errors))])

    @property
    def needed(self) -> int:
        """Fewest samples that give every percentile an upper bound."""
        return max(sample_floor(one.quantile) for one in self.percentiles)

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(one.text for one in self.each)

    def hold(self, seen: Evidence) -> tuple[Finding, ...]:
        return tuple(one.hold(seen) for one in self.each)


def parse_objectives(texts: Sequence[str], max_errors: str | None = None) -> Objectives:
    """From ``p99<=50ms and memory<=400MB``; ``and``, commas and several texts join.

    ``<`` and ``<=`` mean the same. ``max_errors`` is the bound of one more, ``errors``.

    Raises:
        UsageError: one cannot be read, names no known measure, has no bound above 0, stands there
            twice, or no percentile is among them.
    """
    parts = [part.strip() for text in texts for part in _BETWEEN.split(text)]
    if max_errors is not None:
        parts.append(f"errors<={max_errors}")
    each = tuple(_parse(part) for part in parts)
    names = [one.name for one in each]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"the objective {twice} is given twice", hint="Give each measure once.")
    found = Objectives(each)
    if not found.percentiles:
        raise UsageError(
            "no percentile is among the objectives, so no rate would be too high", hint=_HINT
        )
    return found


def _parse(text: str) -> Objective:
    form = _FORM.fullmatch(text)
    if form is None:
        raise UsageError(f"the objective {text!r} cannot be read", hint=_HINT)
    name, number, unit = form[1].lower(), form[2], form[3]
    if name not in _UNITS:
        raise UsageError(f"there is no measure {form[1]!r} in {text!r}", hint=_HINT)
    units = _UNITS[name]
    if unit not in units:
        known = ", ".join(one or "a bare share" for one in units)
        raise UsageError(f"the objective {text!r} lacks its unit ({known})", hint=_HINT)
    bound = _number(number, text) * units[unit]
    if not 0 < bound < math.inf:
        raise UsageError(f"the bound of {text!r} is not above 0", hint=_HINT)
    if name in PERCENTILES:
        return Percentile(name, PERCENTILES[name], max(round(bound), 1))
    if name == "errors":
        return Errors(_share(bound, text))
    return Memory(bound) if name == "memory" else Joules(bound)


def _number(text: str, objective: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{text!r} in {objective!r} is no number", hint=_HINT) from None


def _share(share: float, text: str) -> float:
    # 0.1% times 0.01 is not exactly 0.001.
    if share > FAILURE_LIMIT * (1 + 1e-9):
        raise UsageError(
            f"{text!r} allows more errors than {FAILURE_LIMIT:.1%}, which make a run INVALID",
            hint=f"Give {FAILURE_LIMIT:.1%} or less.",
        )
    return share


def _state(value: float, limit: float) -> State:
    return "met" if value <= limit else "missed"


def _why(trial: Trial, what: str) -> str:
    if trial.resources is None:
        return "nothing was sampled"
    told = trial.resources.unmeasurable
    near = [why for name, why in told.items() if name.startswith(what) or what.startswith(name)]
    return next(iter(near), "nothing tells why")


def _milliseconds(duration_ns: float) -> str:
    return f"{duration_ns / 1e6:.4g}"
