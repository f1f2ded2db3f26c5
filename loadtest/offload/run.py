"""Both sides measured in turns: each repeat visits each of them once, on a fresh server."""

from __future__ import annotations

from dataclasses import dataclass, field

from loadtest.resources.sampler import Sampler
from loadtest.results import Settings
from loadtest.rig import Arm, Ready, Rig
from loadtest.runner import generate
from loadtest.sweep import SweepListener
from loadtest.trials import PlannedTrial, Visit, plan_visits
from serving.errors import InfersweepError, LoadError

ONBOARD, OFFLOAD = "onboard", "offload"


@dataclass
class Duel:
    """The windows of one results folder that are not measured yet.

    Attributes:
        arms: onboard without a link, and offload with one.
    """

    rig: Rig
    arms: tuple[Arm, Arm]
    listener: SweepListener
    _finished: set[str] = field(default_factory=set)

    def run(self) -> None:
        """Measure what is missing. Everything measured before an exception stays on disk.

        Raises:
            InfersweepError: the generator failed, or the model cannot be read.
        """
        rig = self.rig
        rig.open()
        self._finished = {trial.id for trial in rig.folder.read_trials()}
        with Sampler(rig.folder.resources) as sampler:
            rig.measure_idle(sampler)
            for visit in plan_visits(planned(rig.settings, self.arms)):
                self._visit(visit, sampler)
            if sampler.ended is not None:
                self.listener.warning(f"resources were not sampled to the end: {sampler.ended}")

    def _visit(self, visit: Visit, sampler: Sampler) -> None:
        arm = next(one for one in self.arms if one.name == visit.backend)
        pending = [trial for trial in visit.trials if trial.id not in self._finished]
        record = self.rig.records.get(arm.name)
        if not pending or (record and record.excluded):
            return
        try:
            with self.rig.ready(arm, sampler) as ready:
                if ready is not None:
                    self._measure(ready, pending, sampler)
        except LoadError:
            raise
        except InfersweepError as error:
            self.rig.exclude(arm.name, error)

    def _measure(self, ready: Ready, pending: list[PlannedTrial], sampler: Sampler) -> None:
        rig, (trial,) = self.rig, pending
        self.listener.stage(f"{ready.arm.name}, repeat {trial.repeat}")
        spec = rig.spec(ready, (trial.level,), trial.id)
        for output in generate(spec, rig.fleet, rig.log(trial.id)):
            kept = rig.keep(trial, output, ready, sampler)
            self._finished.add(kept.id)
            self.listener.trial_done(kept, len(self._finished), self.planned)

    @property
    def planned(self) -> int:
        return planned(self.rig.settings, self.arms).planned_trials


def planned(settings: Settings, arms: tuple[Arm, Arm]) -> Settings:
    """The same with the arms in place of the backends that serve them."""
    return settings.model_copy(update={"backends": tuple(arm.name for arm in arms)})
