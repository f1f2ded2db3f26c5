"""What one search over settings found: ``tune.json``."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field

from loadtest.record import Record
from loadtest.results import SCHEMA_VERSION, Manifest, Ranking
from loadtest.tune.front import COSTS, Candidate, knee, pareto_front, shared_costs
from loadtest.tune.gain import Decision, Gain, rate_text
from loadtest.tune.importance import Effect, Mattered, effects_of
from loadtest.tune.outcome import Outcome, Tried
from loadtest.tune.space import Space
from serving.knobs import Setting

NAME = "tune.json"


class AxisRecord(Record):
    knob: str
    values: tuple[str, ...]
    default: str


class SpaceRecord(Record):
    axes: tuple[AxisRecord, ...]
    settings: int = Field(description="that make sense and launch different servers")
    exact: bool = Field(description="false where the number is an estimate from a sample")


class TriedRecord(Record):
    """One setting, with what was found of it."""

    number: int
    arm: str = Field(description="what trials and searches call it")
    changes: dict[str, str] = Field(description="what differs from the default; empty for it")
    here: bool = Field(description="whether its measurements lie in this folder")
    outcome: Outcome | None = Field(description="null while it is being measured")
    on_front: bool = False

    @property
    def text(self) -> str:
        return text_of(self.changes)


class EffectRecord(Record):
    """One knob; see ``loadtest.tune.importance``."""

    knob: str
    best_rps: dict[str, float] = Field(description="by value: goodput or estimate of the best")
    loss: float = Field(description="of the worst value that was tried, 0 to 1")
    verdict: Mattered


class GainRecord(Record):
    """Both settings measured again, in turns."""

    decision: Decision
    ratio: float | None = Field(description="of geometric means; null where one side has no rate")
    low: float | None = Field(description="95% interval; null for fewer than three repeats")
    high: float | None
    default_rps: tuple[float, ...]
    tuned_rps: tuple[float, ...]


class DeployRecord(Record):
    """What to deploy. Commands are run in the folder."""

    folder: str = Field(description="in the results folder")
    files: dict[str, str] = Field(description="name to content")
    commands: tuple[str, ...]


class TunedBackend(Record):
    backend: str
    searched: bool = Field(description="whether the budget is spent, or no setting is left")
    space: SpaceRecord
    tried: tuple[TriedRecord, ...]
    costs: tuple[str, ...] = Field(description="measures that the front is over, besides goodput")
    best: int | None = Field(default=None, description="number of the setting with most goodput")
    knee: int | None = None
    chosen: int | None = Field(
        default=None, description="null until best and default have been measured again"
    )
    effects: tuple[EffectRecord, ...] = ()
    gain: GainRecord | None = Field(
        default=None, description="null where the best is the default, or nothing was found"
    )
    deploy: DeployRecord | None = None
    excluded: str | None = None
    sentence: str

    @property
    def complete(self) -> bool:
        """Whether this is the answer, be it that there is none."""
        nothing = self.searched and self.best is None
        return nothing or self.chosen is not None or self.excluded is not None

    def setting(self, number: int | None) -> TriedRecord | None:
        return next((one for one in self.tried if one.number == number), None)

    @property
    def spent_s(self) -> float:
        return sum(one.outcome.spent_s for one in self.tried if one.outcome)


class TuneRecord(Record):
    """``tune.json``."""

    schema_version: int = SCHEMA_VERSION
    manifest: Manifest
    budget: str
    repeats: int = Field(description="of default and best setting, measured again")
    complete: bool = Field(description="whether every backend has its answer")
    backends: tuple[TunedBackend, ...]
    ranking: Ranking = Field(description="of defaults and best settings, measured again")

    @property
    def sentences(self) -> tuple[str, ...]:
        told = tuple(one.sentence for one in self.backends)
        return (*told, self.ranking.sentence) if len(self.backends) > 1 else told


def arm_name(label: str, space: Space, tried: Tried) -> str:
    """The default is called as where nothing is tuned."""
    return label if tried.point == space.default else f"{label} #{tried.number}"


def text_of(changes: Setting) -> str:
    return " ".join(f"{knob}={value}" for knob, value in changes.items()) or "default"


def best_of(tried: Sequence[Tried]) -> Tried | None:
    """The one with most goodput, of equals the earliest; ``None`` where none met the objectives."""
    found = [(one.outcome.goodput_rps or 0.0, one) for one in tried if one.outcome]
    best = max(found, key=lambda pair: pair[0], default=None)
    return best[1] if best and best[0] > 0 else None


def tuned_backend(
    label: str,
    space: Space,
    tried: Sequence[Tried],
    objectives: Sequence[str],
    gain: Gain | None = None,
    *,
    searched: bool = True,
    excluded: str | None = None,
) -> TunedBackend:
    """Everything that follows from what was tried and from the last measurement."""
    candidates = [_candidate(one.number, one.outcome) for one in tried if _is_known(one)]
    front = pareto_front(candidates)
    best, bent = best_of(tried), knee(front)
    default = next((one for one in tried if one.point == space.default), None)
    chosen = _chosen(best, default, gain) if searched else None
    asked = " and ".join(objectives)
    told = _sentence(label, space, best, gain, asked) if searched else _so_far(label, space, best)
    return TunedBackend(
        backend=label,
        searched=searched,
        space=_space_record(space),
        tried=tuple(_tried_record(label, space, one, front) for one in tried),
        costs=shared_costs(candidates) if candidates else COSTS,
        best=best.number if best else None,
        knee=bent.number if bent else None,
        chosen=chosen.number if chosen else None,
        effects=tuple(_effect_record(effect) for effect in effects_of(space, tried)),
        gain=_gain_record(gain),
        excluded=excluded,
        sentence=excluded or told,
    )


def _space_record(space: Space) -> SpaceRecord:
    axes = tuple(
        AxisRecord(knob=axis.knob, values=axis.values, default=axis.default) for axis in space.axes
    )
    return SpaceRecord(axes=axes, settings=space.size.settings, exact=space.size.exact)


def _tried_record(
    label: str, space: Space, tried: Tried, front: Sequence[Candidate]
) -> TriedRecord:
    return TriedRecord(
        number=tried.number,
        arm=arm_name(label, space, tried),
        changes=dict(space.changes(tried.point)),
        here=tried.here,
        outcome=tried.outcome,
        on_front=any(one.number == tried.number for one in front),
    )


def _effect_record(effect: Effect) -> EffectRecord:
    return EffectRecord(
        knob=effect.knob,
        best_rps=dict(effect.best_rps),
        loss=effect.loss,
        verdict=effect.verdict,
    )


def _chosen(best: Tried | None, default: Tried | None, gain: Gain | None) -> Tried | None:
    if best is None or default is None or best.number == default.number:
        return best
    if gain is None:
        return None
    return best if gain.is_one else default


def _so_far(label: str, space: Space, best: Tried | None) -> str:
    known = f"The best setting so far: {text_of(space.changes(best.point))}." if best else ""
    return (
        f"The search on {label} is not finished. {known or 'No setting meets the objectives yet.'}"
    )


def _sentence(label: str, space: Space, best: Tried | None, gain: Gain | None, asked: str) -> str:
    if best is None:
        return f"{label} met {asked} in no setting that was tried."
    name = f"{label} with {text_of(space.changes(best.point))}"
    if best.point == space.default:
        assert best.outcome is not None
        rate = rate_text([best.outcome.goodput_rps or 0.0])
        return f"Keep the default of {label}: nothing that was tried serves more than its {rate}."
    if gain is None:
        return f"The best found is {name}; it has not been measured beside the default again."
    if gain.is_one:
        return f"{name} serves {rate_text(gain.tuned_rps)} within {asked}: {gain.sentence}."
    return (
        f"No significant gain on {label}: keep the default. The best found, {name}: "
        f"{gain.sentence}."
    )


def _gain_record(gain: Gain | None) -> GainRecord | None:
    if gain is None:
        return None
    change = gain.change
    return GainRecord(
        decision=gain.decision,
        ratio=change.ratio if change else None,
        low=change.low if change else None,
        high=change.high if change else None,
        default_rps=gain.default_rps,
        tuned_rps=gain.tuned_rps,
    )


def _is_known(one: Tried) -> bool:
    return one.outcome is not None and one.outcome.goodput_rps is not None


def _candidate(number: int, outcome: Outcome | None) -> Candidate:
    assert outcome is not None
    assert outcome.goodput_rps is not None
    return Candidate(
        number, outcome.goodput_rps, outcome.p99_ms, outcome.memory_bytes, outcome.joules
    )
