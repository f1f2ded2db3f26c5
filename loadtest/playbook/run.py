"""One experiment, from its claim to its record."""

from __future__ import annotations

import time
import traceback
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from random import Random

from loadtest.playbook.experiment import Arm, Bench, Experiment, Lab, Start
from loadtest.playbook.judging import (
    UNITS,
    breaks,
    effect_of,
    sentence_of,
    too_noisy,
    value_of,
    verdict_of,
)
from loadtest.playbook.record import Answers, ArmRecord, ExperimentRecord, WindowRecord
from serving.errors import InfersweepError, LoadError, ServerError

_BROKEN = (LoadError, ServerError)
"""What may work when it is run again; other errors say what this machine or model has not."""


_TRIES = 2
_APART = 100
"""Between the number of a window and that of its second try."""


@dataclass
class _Seen:
    """What is known of one arm so far."""

    arm: Arm
    start: Start
    windows: list[WindowRecord] = field(default_factory=list)
    start_s: list[float] = field(default_factory=list)
    rss_bytes: int | None = None
    answers: Answers | None = None
    facts: dict[str, str] = field(default_factory=dict)

    def up(self, bench: Bench) -> None:
        if bench.start_s is not None:
            self.start_s.append(bench.start_s)
        self.answers = bench.answers
        self.facts = dict(bench.facts())

    def measured(self, bench: Bench, start: int, repeat: int) -> None:
        """Once more where the window does not count; such windows stay in the record."""
        for again in range(_TRIES):
            window = bench.window(start, repeat + again * _APART)
            if window is None:
                break
            self.windows.append(window)
            if not window.reasons:
                break
        now = bench.rss_bytes()
        if now is not None:
            self.rss_bytes = max(now, self.rss_bytes or 0)

    def record(self) -> ArmRecord:
        return ArmRecord(
            name=self.arm.name,
            what=self.arm.what,
            windows=tuple(self.windows),
            start_s=tuple(self.start_s),
            rss_bytes=self.rss_bytes,
            answers=self.answers,
            facts=self.facts,
        )


def run(experiment: Experiment, lab: Lab) -> ExperimentRecord:
    """Measure every arm in turns and judge.

    Whatever keeps it from being measured is in the record, so that others are measured all the
    same; only an interruption is raised.
    """
    began_s, started = time.monotonic(), datetime.now().astimezone().isoformat(timespec="seconds")
    starts = min(experiment.starts or lab.pace.starts, lab.pace.starts)
    seen: list[_Seen] = []
    missing, failed = experiment.missing(lab), False
    if not missing:
        lab.folder.mkdir(parents=True, exist_ok=True)
        try:
            for arm in experiment.arms(lab)[: lab.pace.arms]:
                seen.append(_Seen(arm, arm.prepare(lab)))
            for start in range(1, starts + 1):
                _one_start(seen, lab, start, max(lab.pace.windows, 3 if starts < 3 else 1))
        except InfersweepError as error:
            missing, failed = " ".join(str(error).split()), isinstance(error, _BROKEN)
            missing = missing.rstrip(".")
        except Exception as error:
            # An experiment is somebody's own file: a mistake in one must not end the others.
            missing, failed = f"{type(error).__name__}: {error}", True
            (lab.folder / "traceback.txt").write_text(traceback.format_exc(), encoding="utf-8")
    record = conclude(experiment, lab, [one.record() for one in seen], missing)
    took_s = time.monotonic() - began_s
    return record.model_copy(
        update={"started": started, "took_s": took_s, "starts": starts, "failed": failed}
    )


def _one_start(seen: Sequence[_Seen], lab: Lab, start: int, windows: int) -> None:
    """All arms are up at once, and each is measured in its turn, in an order drawn for each."""
    rng = Random(f"{lab.seed} {start}")
    with ExitStack() as stack:
        benches = []
        for one in seen:
            bench = stack.enter_context(one.start())
            one.up(bench)
            benches.append((one, bench))
        for repeat in range(1, windows + 1):
            for one, bench in rng.sample(benches, len(benches)):
                lab.listener.stage(f"{lab.folder.name}: {one.arm.name}, start {start}")
                one.measured(bench, start, repeat)


def conclude(
    experiment: Experiment, lab: Lab, arms: Sequence[ArmRecord], missing: str
) -> ExperimentRecord:
    """The verdict from what was measured; ``missing`` says why something was not."""
    effects = [effect_of(arms[0], arm, experiment.measure) for arm in arms[1:]]
    judged = arms[1] if len(arms) > 1 else None
    effect, answers = (effects[0], judged.answers) if judged else (None, None)
    verdict = verdict_of(effect, answers, experiment.usual, may_lose=experiment.may_lose)
    reasons = [missing] if missing else _why_not(experiment, arms)
    if missing and verdict != "breaks accuracy":
        verdict = "cannot be measured here"
    if verdict == "cannot be measured here" and not reasons and effect and effect.low:
        reasons = [too_noisy(effect, experiment.usual)]
    baseline = arms[0].answers if arms else None
    if baseline is not None and breaks(baseline, may_lose=experiment.may_lose):
        verdict, reasons = "cannot be measured here", [f"the baseline's {baseline.detail}"]
    return ExperimentRecord(
        name=experiment.name,
        title=experiment.title,
        claim=experiment.claim,
        usual=experiment.usual,
        page=experiment.page,
        measure=experiment.measure,
        unit=UNITS[experiment.measure],
        model=lab.model.name,
        started="",
        took_s=0.0,
        starts=0,
        baseline=arms[0].name if arms else "",
        judged=judged.name if judged else "",
        arms=tuple(arms),
        effects=tuple(effects),
        verdict=verdict,
        sentence=sentence_of(verdict, effect, answers, experiment.usual, reasons),
        missing=reasons[0] if verdict == "cannot be measured here" and reasons else "",
    )


def _why_not(experiment: Experiment, arms: Sequence[ArmRecord]) -> list[str]:
    """Why windows of the first two arms do not count."""
    found = []
    for arm in arms[:2]:
        found += [f"{arm.name}: {reason}" for window in arm.windows for reason in window.reasons]
        if any(value_of(window, experiment.measure) is None for window in arm.windows):
            found.append(f"{arm.name}: too few samples for {experiment.measure}")
    return found
