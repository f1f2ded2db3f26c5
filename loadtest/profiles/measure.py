"""The windows of a profile: closed loops, then open ones at shares of what those reached."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from loadtest.resources.sampler import Sampler
from loadtest.results import Settings, Trial
from loadtest.rig import Ready, Rig
from loadtest.sweep import SweepListener
from loadtest.trials import PlannedTrial
from loadtest.window import measure_window, require_right

OPEN_SHARES = (0.4, 0.7, 0.85, 0.95)
"""Of the highest throughput of the closed loops: little company, some, and full batches.

Poisson arrivals meet a server in the middle of its work, which costs it more than those of a closed
loop, which come together when it has answered; and they find it idle.
"""
OPEN = "server"
_OPEN_LONGER = 2
"""So many times as long as a closed loop: batches of a size are rarer."""


@dataclass
class Profiling:
    """Every window of one results folder that is not finished yet."""

    rig: Rig
    listener: SweepListener
    _trials: dict[str, Trial] = field(default_factory=dict)

    def run(self) -> None:
        """Measure what is missing. Everything measured before an exception stays on disk.

        Raises:
            ParityError: the answers are wrong.
            InfersweepError: the server cannot be launched or died, or the generator failed.
        """
        rig = self.rig
        rig.open()
        self._trials = {trial.id: trial for trial in rig.folder.read_trials()}
        with Sampler(rig.folder.resources) as sampler:
            rig.measure_idle(sampler)
            for repeat in range(1, rig.settings.repeats + 1):
                if len(self._of(repeat)) < len(rig.settings.levels) + len(OPEN_SHARES):
                    self._visit(repeat, sampler)

    def _of(self, repeat: int) -> list[Trial]:
        return [trial for trial in self._trials.values() if trial.repeat == repeat]

    def _visit(self, repeat: int, sampler: Sampler) -> None:
        """All windows of one start; one that was cut short begins again."""
        rig = self.rig
        arm = rig.arm(rig.settings.backends[0])
        order = random.Random(f"{rig.settings.seed}/{repeat}")
        with rig.ready(arm, sampler) as found:
            ready, levels = require_right(found, arm.name), rig.settings.levels
            for users in order.sample(levels, len(levels)):
                self._window(ready, sampler, PlannedTrial(arm.name, users, repeat), rig.settings)
            closed = [trial for trial in self._of(repeat) if trial.scenario != OPEN]
            full_rps = max(trial.outcomes["ok"] / trial.window_s for trial in closed)
            for share in order.sample(OPEN_SHARES, len(OPEN_SHARES)):
                rate_rps = float(f"{share * full_rps:.4g}")
                # Another seed in every window, so that each meets other arrivals.
                number = OPEN_SHARES.index(share) + 1
                planned = PlannedTrial(arm.name, rate_rps, repeat, number)
                self._window(ready, sampler, planned, self._open(100 * repeat + number))

    def _open(self, seed: int) -> Settings:
        settings = self.rig.settings
        return settings.model_copy(
            update={
                "scenario": OPEN,
                "level_name": "requests/s",
                "duration_s": _OPEN_LONGER * settings.duration_s,
                "seed": settings.seed + seed,
            }
        )

    def _window(
        self, ready: Ready, sampler: Sampler, planned: PlannedTrial, settings: Settings
    ) -> None:
        if planned.id in self._trials:
            return
        rig = self.rig
        rig.listener.stage(f"{ready.arm.name}, {planned.level:g} {settings.level_name}")
        trial = measure_window(rig, ready, sampler, planned, settings)
        self._trials[trial.id] = trial
        self.listener.trial_done(trial, len(self._trials), rig.settings.planned_trials)
