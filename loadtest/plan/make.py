"""A plan from its options: which is the cheapest, and the answer in one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from types import MappingProxyType

from loadtest.links.profile import LinkProfile
from loadtest.plan.demand import CameraDemand
from loadtest.plan.question import Question
from loadtest.plan.record import Asked, Option, Plan, ScalingPoint, Verification

_LINK_VALUES = {
    "one_way_delay_ms": ("one way", "{:g} ms"),
    "jitter_ms": ("jitter", "{:g} ms"),
    "loss_share": ("loss", "{:.2%}"),
    "uplink_bps": ("uplink", "{:,.0f} bps"),
    "downlink_bps": ("downlink", "{:,.0f} bps"),
}


def plan_of(
    question: Question,
    options: Sequence[Option],
    *,
    model: str,
    window_s: float,
    created: str,
    command: str,
    verifications: Sequence[Verification] = (),
    scaling: Mapping[str, tuple[ScalingPoint, ...]] = MappingProxyType({}),
) -> Plan:
    """Every option answers the same question."""
    chosen = cheapest(options)
    cameras = question.demand.cameras if isinstance(question.demand, CameraDemand) else None
    return Plan(
        created=created,
        command=command,
        infersweep_version=version("infersweep"),
        asked=Asked(
            model=model,
            demand=question.demand.text,
            rate_rps=question.demand.rate_rps,
            cameras=cameras.count if cameras else None,
            fps=cameras.fps if cameras else None,
            objective=question.objective.text,
            link=question.link.name if question.link else None,
            link_sources=_sources(question.link),
            most_lost=question.most_lost,
            survive=question.survive,
            headroom=question.headroom,
            balance=question.balance,
            window_s=window_s,
            seed=question.seed,
        ),
        options=tuple(options),
        chosen=chosen.profile if chosen else None,
        sentence=sentence_of(question, options, chosen),
        verifications=tuple(verifications),
        scaling=dict(scaling),
    )


def cheapest(options: Sequence[Option]) -> Option | None:
    """By price where there is one, else by replicas; of equals the quickest."""

    def cost(option: Option) -> tuple[float, float]:
        replicas = float(option.replicas or 0)
        spent = replicas if option.cost_per_million is None else option.cost_per_million
        return spent, option.response_ms.value if option.response_ms else float("inf")

    return min((one for one in options if one.replicas is not None), key=cost, default=None)


def sentence_of(question: Question, options: Sequence[Option], chosen: Option | None) -> str:
    """With its uncertainty, or why there is no number."""
    if chosen is None:
        reasons = "; ".join(f"{option.backend}: {option.why}" for option in options)
        return f"No number for {question.demand.text}: {reasons}."
    seen, objective = chosen.response_ms, question.objective
    assert seen is not None
    what = "frame age" if chosen.frames else "response time"
    replicas = "replica" if chosen.replicas == 1 else "replicas"
    link = f" over {question.link.name}" if question.link else ""
    failure = ""
    if question.survive and chosen.failure:
        after = chosen.failure.response_ms
        told = f"{after.value:.3g} ms" if after else "no bound"
        failure = f"; with {chosen.failure.failed} failed {objective.name} is {told}"
    return (
        f"{chosen.replicas:,} {replicas} of {chosen.backend} for {question.demand.text}{link}: "
        f"{what} {objective.name} {seen.value:.3g} ms ({seen.low:.3g} to {seen.high:.3g}) of "
        f"{question.limit_ms:g} ms allowed{failure}."
    )


def _sources(link: LinkProfile | None) -> dict[str, str]:
    if link is None:
        return {}
    return {
        f"{name} {form.format(getattr(link, value))}": link.source_of(value)
        for value, (name, form) in _LINK_VALUES.items()
    }
