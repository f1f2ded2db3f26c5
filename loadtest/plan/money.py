"""What a planned replica draws and costs. Pure."""

from __future__ import annotations

from loadtest.energy_use import JOULES_PER_WH, flight_time_lost_s
from loadtest.plan.question import Question
from loadtest.plan.record import EnergyForecast
from loadtest.profiles.record import Profile

_PER_MILLION = 1e6
_S_PER_HOUR = 3600.0


def energy_of(
    profile: Profile, rate_rps: float, utilisation: float, question: Question
) -> tuple[EnergyForecast | None, str | None]:
    """Of one replica at this rate; ``None`` and why where the profile has no power.

    Power lies on the straight line from idle to busy by utilisation: Fan, Weber, Barroso, *Power
    provisioning for a warehouse-sized computer*, ISCA 2007. Without an idle figure it is taken to
    be that of a busy machine.
    """
    energy = profile.energy
    if energy is None:
        return None, profile.energy_missing or "the profile has no power"
    idle_w = energy.active_w if energy.idle_w is None else energy.idle_w
    watts = idle_w + (energy.active_w - idle_w) * min(utilisation, 1.0)
    net_j = None if energy.idle_w is None else (watts - energy.idle_w) / rate_rps
    lost_s = None
    if question.hover_w is not None and question.battery_wh is not None:
        lost_s = flight_time_lost_s(question.hover_w, question.battery_wh, watts)
    return EnergyForecast(
        watts=watts,
        gross_j_per_inference=watts / rate_rps,
        net_j_per_inference=net_j,
        inferences_per_wh=JOULES_PER_WH * rate_rps / watts,
        flight_time_lost_s=lost_s,
    ), None


def cost_of(question: Question, replicas: int) -> float | None:
    """Of a million inferences at the demand's mean rate; ``None`` without a price."""
    if question.price_per_hour is None:
        return None
    mean_rps = getattr(question.demand, "mean_rps", question.demand.rate_rps)
    per_hour = mean_rps * _S_PER_HOUR
    return replicas * question.price_per_hour / per_hour * _PER_MILLION
