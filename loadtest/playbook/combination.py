"""Everything that helped, measured together: do the effects multiply?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from loadtest.playbook.experiment import Advice, Experiment, Lab
from loadtest.playbook.record import Combination, ExperimentRecord, Part
from loadtest.playbook.run import run
from loadtest.playbook.served import Served
from serving.knobs import describe, knobs_of

DEFAULT = Served(
    "default",
    "FastAPI on one gunicorn worker per CPU, ONNX Runtime, JSON: what many begin with",
    backend="fastapi",
    load={"encoding": "json"},
)


@dataclass
class _Plan:
    """Which advice is followed; the larger effect wins where two say different things."""

    backend: str = DEFAULT.backend
    setting: dict[str, str] = field(default_factory=dict)
    load: dict[str, Any] = field(default_factory=lambda: dict(DEFAULT.load))
    variant: str | None = None
    parts: list[Part] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)
    _said: dict[str, str] = field(default_factory=dict)

    def take(self, experiment: Experiment, record: ExperimentRecord, advice: Advice) -> None:
        said = _said(advice)
        for key, value in said.items():
            if key in self._said and self._said[key] != value:
                self.left_out[experiment.name] = f"{key} is {self._said[key]} already"
                return
        effect = record.effect
        assert effect is not None
        assert effect.ratio is not None
        assert effect.low is not None
        assert effect.high is not None
        self._said.update(said)
        self.backend = advice.backend or self.backend
        self.setting.update(advice.setting)
        self.load.update(advice.load)
        self.variant = advice.variant or self.variant
        self.parts.append(
            Part(
                experiment=experiment.name,
                what=next(arm.what for arm in record.arms if arm.name == record.judged),
                ratio=effect.ratio,
                low=effect.low,
                high=effect.high,
            )
        )

    def arm(self) -> Served:
        """What serves with all of it; knobs that its backend has not are not among its setting."""
        known = knobs_of(self.backend)
        setting = {name: value for name, value in self.setting.items() if name in known}
        told = [self.backend, self.variant or "", describe(setting)]
        told += [f"{name}={value}" for name, value in self.load.items()]
        kind = self.variant
        return Served(
            "combined",
            ", ".join(filter(None, told)),
            backend=self.backend,
            setting=setting,
            load=self.load,
            model=(lambda lab: lab.variant(kind)) if kind else None,
        )


def combine(
    experiments: Sequence[Experiment],
    known: Mapping[str, ExperimentRecord],
    lab: Lab,
    before: Combination | None = None,
) -> Combination | None:
    """``None`` where fewer than two things helped that a deployment can follow.

    ``before`` is given back when it has the same parts and did not break.
    """
    plan = _Plan()
    helped = [one for one in experiments if one.advice and one.name in known]
    for experiment in sorted(helped, key=lambda one: _gain(known[one.name]), reverse=True):
        record, advice = known[experiment.name], experiment.advice
        assert advice is not None
        if record.verdict in ("holds", "holds in part"):
            plan.take(experiment, record, advice)
        else:
            plan.left_out[experiment.name] = record.verdict
    if len(plan.parts) < 2:
        return None
    if before and before.parts == tuple(plan.parts) and not before.experiment.failed:
        return before
    predicted = prod(part.ratio for part in plan.parts)
    test = Experiment(
        name="combination",
        title="Everything that helped, together",
        claim="Effects multiply: what each gives alone, all give together.",
        usual=(predicted, predicted),
        page="playbook.md",
        arms=lambda _lab: (DEFAULT, plan.arm()),
        may_lose=True,
    )
    return Combination(
        default=DEFAULT.what,
        combined=plan.arm().what,
        parts=tuple(plan.parts),
        left_out=plan.left_out,
        predicted=predicted,
        experiment=run(test, lab),
    )


def _gain(record: ExperimentRecord) -> float:
    return (record.effect and record.effect.ratio) or 0.0


def _said(advice: Advice) -> dict[str, str]:
    """Each thing that the advice decides, as text that can be compared."""
    found = {f"knob {name}": value for name, value in advice.setting.items()}
    found |= {f"load {name}": str(value) for name, value in advice.load.items()}
    if advice.backend:
        found["backend"] = advice.backend
    if advice.variant:
        found["variant"] = advice.variant
    return found
