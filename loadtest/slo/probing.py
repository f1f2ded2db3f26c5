"""How each window of a search is measured: its length, its arrivals, when it ends early. Pure."""

from __future__ import annotations

from loadtest.objective import Objectives
from loadtest.results import Settings
from loadtest.slo.bracket import CLOSED_S
from loadtest.slo.state import CLOSED, State
from loadtest.trial import StopRule


def closed_settings(settings: Settings) -> Settings:
    """Of the closed loops in front of a search."""
    length_s = min(CLOSED_S, settings.duration_s)
    return settings.model_copy(update={"scenario": CLOSED, "duration_s": length_s})


def probe_settings(settings: Settings, state: State, rate_rps: float, number: int) -> Settings:
    """Of the probe ``number``; another seed, so that a repeated rate meets other arrivals."""
    length_s = state.windows.length_s(rate_rps, state.objectives.needed)
    seed = settings.seed + 100 * (state.repeat - 1) + number
    return settings.model_copy(update={"duration_s": length_s, "seed": seed})


def stop_rule(objectives: Objectives) -> StopRule:
    limits = tuple((one.quantile, one.limit_ns) for one in objectives.percentiles)
    return StopRule(percentiles=limits, failures=objectives.error_share)
