"""How much of a setting is measured before it is left, and what is then said of it. Pure.

Two short closed loops are the screen: they cost seconds. Then a probe just above the best rate so
far; a window that cannot be met ends early. Only what meets it is searched to its end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from loadtest.contest import Race
from loadtest.objective import Evidence
from loadtest.resources.sampler import SERVER
from loadtest.rounding import four_digits
from loadtest.slo.bracket import MANY
from loadtest.slo.state import State
from loadtest.tune.outcome import Outcome

HEADSTART = 1.03
"""Where a setting must prove itself, times the best rate so far. Less could not be told from the
noise between two starts of one server."""
_SLACK = 1.05
"""What a closed loop may understate, times."""


@dataclass(frozen=True)
class Bar:
    """What the settings so far have reached.

    Attributes:
        best_rps: the highest goodput; ``None`` before there is one.
        fulfilled: median of goodput over what was guessed from the closed loops; 1 if unknown.
        most: the largest share of the closed loops' capacity that became goodput, 1 or more.
    """

    best_rps: float | None = None
    fulfilled: float = 1.0
    most: float = 1.0

    @staticmethod
    def of(outcomes: Sequence[Outcome]) -> Bar:
        rates = [(one.goodput_rps, one) for one in outcomes if one.goodput_rps]
        guessed = [goodput / one.guess_rps for goodput, one in rates if one.guess_rps]
        shares = [goodput / one.capacity_rps for goodput, one in rates if one.capacity_rps]
        return Bar(
            max((goodput for goodput, _ in rates), default=None),
            median(guessed) if guessed else 1.0,
            max([1.0, *shares]),
        )

    @property
    def first_rps(self) -> float | None:
        return None if self.best_rps is None else HEADSTART * self.best_rps

    @property
    def race(self) -> Race:
        return Race(self.first_rps, lambda state: bool(self.lost(state)))

    def lost(self, state: State) -> str:
        """Why the setting cannot be the best; empty while it can, and before there is a bar."""
        if self.best_rps is None:
            return ""
        if not state.probes:
            return self._screened(state)
        last, search = state.probes[-1], state.search
        if any(probe.judgement.verdict in ("met", "costly") for probe in state.probes):
            return ""
        bar_rps = search.scope.within(HEADSTART * self.best_rps)
        if search.next_rps is not None and search.next_rps >= bar_rps:
            return ""
        return f"at {four_digits(last.seen.trial.level)} requests/s, {last.judgement.why}"

    def _screened(self, state: State) -> str:
        if state.search.scope.hopeless:
            return "one request at a time misses an objective already"
        most_rps = _SLACK * self.most * capacity_of(state)
        if self.best_rps is not None and most_rps < self.best_rps:
            told = four_digits(capacity_of(state))
            return f"{MANY:g} users at once get no more than {told} answers/s"
        return ""

    def estimate_rps(self, guess_rps: float) -> float:
        """The likely goodput of a setting that was left; not above the best one."""
        likely_rps = self.fulfilled * guess_rps
        return likely_rps if self.best_rps is None else min(likely_rps, self.best_rps)


def capacity_of(state: State) -> float:
    """Right answers per second of the better closed loop."""
    trials = [one.trial for one in state.closed.values()]
    return max(trial.outcomes["ok"] / trial.window_s for trial in trials)


def outcome_of(state: State, bar: Bar) -> Outcome:
    """What a race that is over says of its setting. Both closed loops are there.

    Raises:
        LoadError: as ``State.search`` says.
    """
    answer, scope = state.search.answer, state.search.scope
    loops = {"capacity_rps": capacity_of(state), "guess_rps": scope.first_rps}
    left = bar.lost(state)
    if answer.met_rps is not None and not left:
        return Outcome(
            verdict="searched",
            why="; ".join(answer.reasons),
            goodput_rps=answer.met_rps,
            estimate_rps=answer.met_rps,
            **loops,
            **_costs(_at_best(state, answer.met_rps)),
        )
    if scope.hopeless or answer.kind == "not reachable":
        why = left or "; ".join(answer.reasons) or "no rate that was probed met the objectives"
        return Outcome(verdict="not reachable", why=why, estimate_rps=0.0, **loops)
    return Outcome(
        verdict="pruned",
        why=left or "no probe told whether it is better",
        estimate_rps=bar.estimate_rps(scope.first_rps),
        **loops,
    )


def too_slow(why: str, state: State, bar: Bar) -> Outcome:
    """Of a setting that answers too little for a search to begin."""
    capacity_rps = capacity_of(state)
    return Outcome(
        verdict="pruned",
        why=why,
        estimate_rps=bar.estimate_rps(capacity_rps),
        capacity_rps=capacity_rps,
    )


def _at_best(state: State, rate_rps: float) -> Evidence:
    """The last window that met everything at the rate."""
    return next(
        probe.seen
        for probe in reversed(state.probes)
        if probe.judgement.verdict == "met" and probe.seen.trial.level == rate_rps
    )


def _costs(seen: Evidence) -> Mapping[str, Any]:
    p99, use = seen.samples.percentile(0.99), seen.trial.resources
    server = use.roles.get(SERVER) if use else None
    memory_bytes = None
    if server is not None:
        memory_bytes = (
            server.rss_peak_bytes if server.pss_peak_bytes is None else server.pss_peak_bytes
        )
    energy = use.energy if use else None
    known = energy is not None and not energy.missing
    return {
        "p99_ms": None if p99 is None else p99.value / 1e6,
        "memory_bytes": memory_bytes,
        "joules": energy.joules_per_inference if known and energy else None,
    }
