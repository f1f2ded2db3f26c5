"""Everything that helped, measured together: do the effects multiply?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

from loadtest.playbook.experiment import Advice, Experiment, Lab
from loadtest.playbook.needs import batched
from loadtest.playbook.record import Combination, ExperimentRecord, Part
from loadtest.playbook.run import run
from loadtest.playbook.served import Served
from serving.knobs import describe

BACKEND = "onnxruntime"
_JSON = {"encoding": "json"}
_NO_BATCHER = {"queue_delay_us": "off"}


def default_arm(lab: Lab) -> Served:
    """Our server with nothing of what the experiments turn on."""
    plain = "" if batched(lab) else ", no dynamic batcher"
    return Served(
        "default",
        f"our server, JSON{plain}: nothing of what experiments turn on",
        backend=BACKEND,
        setting={} if batched(lab) else _NO_BATCHER,
        load=_JSON,
    )


@dataclass
class _Plan:
    """Which advice is followed; the larger effect wins where two say different things."""

    setting: dict[str, str]
    load: dict[str, Any]
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
        """What serves with all of it."""
        told = [BACKEND, self.variant or "", describe(self.setting)]
        told += [f"{name}={value}" for name, value in self.load.items()]
        kind = self.variant
        return Served(
            "combined",
            ", ".join(filter(None, told)),
            backend=BACKEND,
            setting=self.setting,
            load=self.load,
            model=(lambda lab: lab.variant(kind)) if kind else None,
        )


def combine(
    experiments: Sequence[Experiment],
    known: Mapping[str, ExperimentRecord],
    lab: Lab,
    before: Combination | None = None,
) -> Combination | None:
    """``None`` where nothing helped that a deployment can follow.

    ``before`` is given back when it has the same parts and did not break.
    """
    default = default_arm(lab)
    plan = _Plan(dict(default.setting), dict(default.load))
    helped = [one for one in experiments if one.advice and one.name in known]
    for experiment in sorted(helped, key=lambda one: _gain(known[one.name]), reverse=True):
        record, advice = known[experiment.name], experiment.advice
        assert advice is not None
        if record.verdict in ("holds", "holds in part"):
            plan.take(experiment, record, advice)
        else:
            plan.left_out[experiment.name] = record.verdict
    if not plan.parts:
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
        arms=lambda _lab: (default, plan.arm()),
        may_lose=True,
    )
    return Combination(
        default=default.what,
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
    if advice.variant:
        found["variant"] = advice.variant
    return found
