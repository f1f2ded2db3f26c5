"""Which rate is probed next, and what the probes so far say. Pure: no clock, no server.

The search gallops from a first guess until one rate is met and a higher one is not, then bisects on
the logarithm of the rate. All of its state is the path of probes, so a search that was interrupted
goes on by being given its path again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from loadtest.searched import AnswerKind, ProbeVerdict

PRECISION = 1.05
"""The search ends when the lowest rate that missed is at most so many times the highest met one."""
MOST_PROBES = 12
FIRST_STEP = 1.25
NEAR_STEP = 1.049
"""The first step where the guess is a former answer; below ``PRECISION``, so that rounding a rate
to four digits leaves no gap that must be bisected once more."""
STEP_GROWTH = 3
"""Each gap of the gallop is the one before it to this power. Then the gap with the crossing in it
takes few enough bisections that ``MOST_PROBES`` are enough for a range of 1 to 7,500."""
_DIGITS = 4


@dataclass(frozen=True)
class Probe:
    rate_rps: float
    verdict: ProbeVerdict


@dataclass(frozen=True)
class Scope:
    """What is known before the first probe.

    Attributes:
        first_rps: the best guess.
        lowest_rps: below it a window has too few requests for the percentile.
        highest_rps: above it the generator itself would be measured.
        hopeless: one request at a time misses already, so no lower rate can help.
        first_step: ratio of the first two rates; small where the guess is a former answer.
    """

    first_rps: float
    lowest_rps: float
    highest_rps: float
    hopeless: bool = False
    first_step: float = FIRST_STEP

    def within(self, rate_rps: float) -> float:
        """The nearest rate that can be probed, in four digits."""
        return min(max(_rounded(rate_rps), self.lowest_rps), self.highest_rps)


@dataclass(frozen=True)
class Answer:
    """What the path says.

    Attributes:
        kind: ``found`` within ``PRECISION``; ``at least`` where the generator ends, or the next
            rate could not be measured; ``open`` while probes are missing, or when ``MOST_PROBES``
            were not enough.
        met_rps: the highest rate that met all objectives.
        missed_rps: the lowest rate above it that did not; ``None`` where no such rate missed.
        reasons: what a reader must know besides.
    """

    kind: AnswerKind
    met_rps: float | None
    missed_rps: float | None
    reasons: tuple[str, ...] = ()


class _Rate:
    """All that was told of one rate, in order."""

    def __init__(self, verdicts: Iterable[ProbeVerdict]) -> None:
        verdicts = list(verdicts)
        counts = Counter(verdicts)
        self.kept = counts["met"] + counts["costly"]
        self.met = counts["met"]
        self.missed = counts["missed"]
        self.void = counts["void"]
        conclusive = [verdict for verdict in verdicts if verdict != "void"]
        self.last_kept = bool(conclusive) and conclusive[-1] != "missed"

    @property
    def confirmed(self) -> bool:
        return self.kept >= 2

    @property
    def unmeasured(self) -> bool:
        return not self.kept and not self.missed and self.void >= 2


@dataclass(frozen=True)
class Search:
    """One search after the probes of ``path``."""

    scope: Scope
    path: tuple[Probe, ...] = ()

    def told(self, verdict: ProbeVerdict) -> Search:
        """The search after a probe at ``next_rps``."""
        assert self.next_rps is not None
        return replace(self, path=(*self.path, Probe(self.next_rps, verdict)))

    @cached_property
    def next_rps(self) -> float | None:
        """The rate to probe; ``None`` when the search has ended."""
        if len(self.path) >= MOST_PROBES:
            return None
        if not self.path:
            return self.scope.within(self.scope.first_rps)
        again = self._to_repeat()
        return self._next_new() if again is None else again

    @cached_property
    def answer(self) -> Answer:
        """``open`` while ``next_rps`` is a rate."""
        low = self._low
        met = low if low is not None and self._rates[low].met else None
        missed = min((r for r in self._misses if r > (low or 0.0)), default=None)
        return Answer(self._kind(), met, missed, tuple(self._reasons()))

    @cached_property
    def _rates(self) -> dict[float, _Rate]:
        rates = sorted({probe.rate_rps for probe in self.path})
        return {r: _Rate(p.verdict for p in self.path if p.rate_rps == r) for r in rates}

    @cached_property
    def _confirmed(self) -> float:
        """The highest rate that was met twice; what missed at it or below is overruled."""
        return max((r for r, told in self._rates.items() if told.confirmed), default=0.0)

    @cached_property
    def _misses(self) -> list[float]:
        """Rates that missed and were not overruled, ascending."""
        return [r for r, told in self._rates.items() if told.missed and r > self._confirmed]

    @cached_property
    def _counted(self) -> dict[float, _Rate]:
        """Rates that were met: twice, or once with no miss at or below."""
        least_missed = self._misses[0] if self._misses else math.inf
        return {r: t for r, t in self._rates.items() if t.kept and r < least_missed}

    @property
    def _low(self) -> float | None:
        return max(self._counted, default=None)

    @cached_property
    def _barriers(self) -> list[float]:
        """Rates above what was met that missed or could not be measured, ascending."""
        low = self._low or 0.0
        return [
            r for r, t in self._rates.items() if r > low and (r in self._misses or t.unmeasured)
        ]

    @property
    def _high(self) -> float | None:
        return self._barriers[0] if self._barriers else None

    @property
    def _hopeless(self) -> bool:
        return self.scope.hopeless and bool(self._misses) and self._low is None

    def _to_repeat(self) -> float | None:
        """A void rate once more; a met one that a lower miss makes doubtful, the highest first."""
        last = self.path[-1]
        if last.verdict == "void" and self._rates[last.rate_rps].void == 1:
            return last.rate_rps
        least_missed = self._misses[0] if self._misses else math.inf
        doubtful = [
            r
            for r, told in self._rates.items()
            if r >= least_missed and told.kept == 1 and told.last_kept and told.void < 2
        ]
        return max(doubtful, default=None)

    def _next_new(self) -> float | None:
        low, high = self._low, self._high
        if low is None:
            if self._hopeless:
                return None
            lowest = self._barriers[0]
            return self._downward() if lowest > self.scope.lowest_rps else self._recheck(lowest)
        if high is None:
            return self._upward(low) if low < self.scope.highest_rps else None
        if high / low <= PRECISION:
            return self._recheck(high)
        return _rounded(math.sqrt(low * high))

    def _recheck(self, rate_rps: float) -> float | None:
        """The end of the search once more, unless done: one hiccup must not be the answer."""
        told = self._rates[rate_rps]
        return rate_rps if told.missed == 1 and not told.kept and told.void < 2 else None

    def _upward(self, low: float) -> float:
        below = max((r for r in self._counted if r < low), default=low)
        return self.scope.within(low * max(self.scope.first_step, (low / below) ** STEP_GROWTH))

    def _downward(self) -> float:
        lowest = self._barriers[0]
        above = self._barriers[1] if len(self._barriers) > 1 else lowest
        return self.scope.within(
            lowest / max(self.scope.first_step, (above / lowest) ** STEP_GROWTH)
        )

    def _bounded(self, rate_rps: float) -> float:
        return self.scope.within(rate_rps)

    def _kind(self) -> AnswerKind:
        low, high = self._low, self._high
        if self.next_rps is not None:
            return "open"
        if low is None:
            at_the_end = high is not None and high <= self.scope.lowest_rps and self._misses
            return "not reachable" if self._hopeless or at_the_end else "open"
        if not self._rates[low].met:
            return "not reachable"
        if high is None:
            return "at least" if low >= self.scope.highest_rps else "open"
        if high / low > PRECISION:
            return "open"
        return "at least" if self._rates[high].unmeasured else "found"

    def _reasons(self) -> Iterator[str]:
        low, high = self._low, self._high
        if self._hopeless:
            yield "one request at a time misses already, so no lower rate can help"
        elif low is None and high is not None and high <= self.scope.lowest_rps:
            yield f"below {high:g} requests/s a window has too few requests"
        if low is not None and not self._rates[low].met:
            yield f"at {low:g} requests/s only the energy misses, and a lower rate costs more"
        if low is not None and low == self.scope.highest_rps:
            yield f"above {low:g} requests/s the generator itself would be measured"
        if high is not None and self._rates[high].unmeasured:
            yield f"{high:g} requests/s could not be measured"
        overruled = [r for r, t in self._rates.items() if t.missed and r <= self._confirmed]
        for rate_rps in overruled:
            yield f"a miss at {rate_rps:g} requests/s was overruled: {self._confirmed:g} met twice"
        if len(self.path) >= MOST_PROBES and self._kind() == "open":
            yield f"{MOST_PROBES} probes were not enough"


def _rounded(rate_rps: float) -> float:
    """Four digits: a rate is named in files and said aloud."""
    return float(f"{rate_rps:.{_DIGITS}g}")
