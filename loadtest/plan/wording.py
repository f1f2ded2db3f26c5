"""How a plan is worded, the same in the page, its figures, Markdown and the terminal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from loadtest.objective import Percentile, parse_objectives
from loadtest.plan.record import Option, Plan, Range, ScalingPoint, Verification
from loadtest.report.answer import Answer
from loadtest.report.numbers import MISSING, failed, milliseconds, rate, share
from loadtest.rounding import four_digits

NO_NUMBER = "no number"
VERDICTS = {"within 15%": "passed", "missed": "failed", "INVALID": "open"}
"""Of a verification, and the class of its badge."""


def percentile_of(plan: Plan) -> Percentile:
    """The first that the objective bounds.

    Raises:
        UsageError: the objective cannot be read.
    """
    return parse_objectives((plan.asked.objective,)).percentiles[0]


def labels_of(plan: Plan) -> tuple[str, ...]:
    """One per option."""
    names = names_of(plan.options)
    return tuple(names[option.profile] for option in plan.options)


def names_of(given: Iterable[Option | Verification]) -> dict[str, str]:
    """By profile: its backend, with the profile where several of them have that backend."""
    backends = {one.profile: one.backend for one in given}
    several = list(backends.values())
    return {
        profile: backend if several.count(backend) == 1 else f"{backend} ({profile})"
        for profile, backend in backends.items()
    }


def chosen_of(plan: Plan) -> Option | None:
    """The first option with a number of the profile that was chosen."""
    known = (one for one in plan.options if one.profile == plan.chosen and one.replicas is not None)
    return next(known, None)


def answer_of(plan: Plan) -> Answer:
    """For the badge: an answer counts as tested where every load that was run met it."""
    if plan.chosen is None:
        return Answer("none", "No answer")
    verdicts = [one.verdict for one in _tests(plan)]
    if "missed" in verdicts:
        return Answer("open", "A test missed")
    if "within 15%" not in verdicts:
        return Answer("open", "Predicted, not tested")
    return Answer("winner", "Predicted and tested")


def told_of_tests(plan: Plan) -> str:
    """A sentence on what was measured of the answer; empty where there is none."""
    if plan.chosen is None:
        return ""
    own, name = _tests(plan), names_of(plan.options).get(plan.chosen, plan.chosen)
    if not own:
        return f"No load was run to test the prediction for {name}."
    valid = [one for one in own if one.verdict != "INVALID"]
    void = len(own) - len(valid)
    told = f" {void} more {'was' if void == 1 else 'were'} INVALID." if void else ""
    if not valid:
        return f"Of {len(own)} loads that tested {name} none was VALID."
    met = sum(one.verdict == "within 15%" for one in valid)
    return (
        f"{name} was tested on the real server: {met} of {len(valid)} "
        f"measurements came within 15% of what had been predicted.{told}"
    )


def _tests(plan: Plan) -> list[Verification]:
    return [one for one in plan.verifications if one.profile == plan.chosen]


def plan_lines(plan: Plan) -> list[str]:
    """What a reader must know before quoting a number of this plan."""
    named = list(zip(plan.options, labels_of(plan), strict=True))
    lines = [f"{label}: {option.why}" for option, label in named if option.replicas is None]
    lines += [f"{label}: {told}" for option, label in named for told in option.warnings]
    return lines + [f"{server}: {_scaling(points)}" for server, points in plan.scaling.items()]


def _scaling(points: Sequence[ScalingPoint]) -> str:
    told = (
        f"{one.instances} of {rate(one.peak_rps)}/s, efficiency {share(one.efficiency)}"
        f"{' (the highest rate)' if one.knee else ''}"
        for one in points
    )
    return f"instances measured: {'; '.join(told)}"


def ranged(value: Range | None) -> str:
    """``87.2 (81.0 to 95.3)``, in the milliseconds that it is given in."""
    if value is None:
        return MISSING
    return f"{milliseconds(value.value)} ({span(value)})"


def span(value: Range) -> str:
    return f"{milliseconds(value.low)} to {milliseconds(value.high)}"


def measured(one: Verification) -> str:
    return f"{milliseconds(one.measured_ms)} ({measured_bounds(one)})"


def measured_bounds(one: Verification) -> str:
    low = milliseconds(one.measured_low_ms)
    if one.measured_high_ms is None:
        return f"at least {low}"
    return f"{low} to {milliseconds(one.measured_high_ms)}"


def signed(value: float | None) -> str:
    return "unknown" if value is None else f"{value:+.1%}"


def signed_share(value: float) -> str:
    return f"{value:+.0%}"


def uplink_share(value: float) -> str:
    """Whatever is sent takes some of it, so 0 stands for a rate that nobody gave."""
    if not value:
        return MISSING
    return f"{value:,.1%}" if value >= 0.01 else f"{100 * value:.2g}%"


def failure(option: Option) -> str:
    """What happens in the order of time; empty where no failure was simulated."""
    forecast = option.failure
    if forecast is None:
        return ""
    of = "" if option.replicas is None else f" of {option.replicas}"
    fails = "fails" if forecast.failed == 1 else "fail at once"
    told = (
        f"When {forecast.failed}{of} {fails}, {failed(forecast.lost_share)} of requests are lost "
        f"for {four_digits(forecast.detect_s)} s, until the balancer knows. "
    )
    if _none_left(option):
        return f"{told}None is left."
    if forecast.response_ms is None:
        return f"{told}Those left would run at {share(forecast.utilisation)}: they cannot keep up."
    then = "hold" if forecast.holds else "miss"
    return f"{told}Those left run at {share(forecast.utilisation)} and {then} the objective."


def utilisation_after(option: Option) -> str:
    """Of the replicas that a failure leaves."""
    if option.failure is None:
        return MISSING
    return "none left" if _none_left(option) else share(option.failure.utilisation)


def _none_left(option: Option) -> bool:
    forecast = option.failure
    return bool(forecast and option.replicas and forecast.failed >= option.replicas)


def cost(option: Option) -> str:
    """With its currency, which never stands alone."""
    if option.cost_per_million is None:
        return MISSING
    return f"{four_digits(option.cost_per_million)} {option.currency or ''}".rstrip()
