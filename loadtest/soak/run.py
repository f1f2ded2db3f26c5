"""One server under load for long: many windows in a row, each written as soon as it is over."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtest.folder import ResultsFolder
from loadtest.resources.board import read_board
from loadtest.resources.energy import whole
from loadtest.resources.gpu import Gpus, load_nvml
from loadtest.resources.rails import INA3221, Rails, find_rails
from loadtest.resources.roots import Roots
from loadtest.resources.sampler import Sampler
from loadtest.resources.tegrastats import TegraLog
from loadtest.rig import Rig
from loadtest.runner import generate
from loadtest.soak.conclude import Measured, conclude
from loadtest.soak.record import NAME, Asked, SoakRecord
from loadtest.sweep import SweepListener
from loadtest.trials import PlannedTrial
from serving.errors import MachineError, ParityError, ServerError
from serving.process import RunningProcess, wait_until

_TEGRASTATS = "tegrastats"
_FIRST_LINE_S = 5.0


@dataclass(frozen=True)
class Sensors:
    """Where the device is read.

    Attributes:
        tegrastats: a log that somebody writes; ``None`` to run the program, where it is installed.
        elsewhere: whether the roots are another machine's, so that no program here speaks of it.
    """

    roots: Roots
    tegrastats: Path | None = None
    elsewhere: bool = False

    @property
    def program(self) -> str | None:
        """What is to be run beside the soak; ``None`` where there is a log, or no such program."""
        return None if self.elsewhere or self.tegrastats else shutil.which(_TEGRASTATS)


def require_power(sensors: Sensors, nvml: Any = None) -> None:
    """Raises MachineError unless some rails are the machine, or tegrastats is about to tell."""
    rails = find_rails(sensors.roots)
    gpus = Gpus(nvml or load_nvml())
    try:
        if sensors.tegrastats and not any(r.name.startswith(f"{INA3221}:") for r in rails):
            rails += TegraLog(sensors.tegrastats).rails()
        reading = Rails([*rails, *gpus.rails()]).read(0.0)
    finally:
        gpus.close()
    if not whole(reading.value) and sensors.program is None:
        why = "; ".join(reading.unmeasurable.values()) or "its rails are not known to be all of it"
        raise MachineError(
            f"the device's power cannot be measured: {why}",
            hint="Leave --hover-w and --battery-wh out, or give --tegrastats LOG of a Jetson.",
        )


@dataclass
class Soak:
    """Attributes: ``rig`` has settings of one backend, one level, and a repeat for each window."""

    rig: Rig
    asked: Asked
    sensors: Sensors
    listener: SweepListener

    def run(self) -> None:
        """Measure every window. What was measured before an exception stays on disk.

        Raises:
            InfersweepError: the server cannot be launched, answers wrongly or died, or the
                generator failed.
        """
        rig = self.rig
        rig.open()
        # What was asked for, should nobody be left to conclude.
        self.conclude()
        (label,) = rig.settings.backends
        arm = rig.arm(label)
        rig.plan(arm)
        with (
            self.tegrastats() as log,
            Sampler(rig.folder.resources, roots=self.sensors.roots, tegrastats=log) as sampler,
        ):
            rig.measure_idle(sampler)
            with rig.ready(arm, sampler) as ready:
                if ready is None:
                    reason = rig.records[label].excluded
                    raise ParityError(f"{label}: {reason}", hint="A wrong answer is no capacity.")
                count, (level,) = rig.settings.repeats, rig.settings.levels
                self.listener.stage(f"soaking {label}")
                windows = [PlannedTrial(label, level, number + 1) for number in range(count)]
                name = windows[0].id
                outputs = generate(
                    rig.spec(ready, (level,) * count, name), rig.fleet, rig.log(name)
                )
                for planned, output in zip(windows, outputs, strict=True):
                    trial = rig.keep(planned, output, ready, sampler)
                    self.listener.trial_done(trial, planned.repeat, count)
                    if ready.server.ended is not None:
                        raise ServerError(
                            f"{label} {ready.server.ended} in window {planned.repeat} of {count}",
                            hint=f"Its log lies in {rig.folder.logs}.",
                        )
            if sampler.ended is not None:
                self.listener.warning(f"resources were not sampled to the end: {sampler.ended}")

    def conclude(self) -> SoakRecord:
        """Derive and write ``soak.json`` from what is on disk."""
        return write_record(self.rig.folder, self.asked, self.sensors.roots)

    @contextmanager
    def tegrastats(self) -> Iterator[Path | None]:
        """The log that is given, else one that is written while this lasts, else none."""
        program = self.sensors.program
        if program is None:
            yield self.sensors.tegrastats
            return
        log = self.rig.folder.logs / f"{_TEGRASTATS}.log"
        argv = (program, "--interval", "1000")
        with RunningProcess(argv, cpus=self.rig.settings.client_cpus, log=log) as process:
            try:
                wait_until(
                    lambda: b"\n" in log.read_bytes(),
                    deadline_s=_FIRST_LINE_S,
                    process=process,
                    what=_TEGRASTATS,
                )
            except ServerError as error:
                self.listener.warning(str(error))
            yield log


def write_record(folder: ResultsFolder, asked: Asked, roots: Roots) -> SoakRecord:
    """Raises ResultsError when the folder is damaged."""
    measured = Measured(
        folder.read_manifest(), folder.read_trials(), folder.read_starts(), folder.read_histograms
    )
    record = conclude(measured, asked, read_board(roots))
    folder.write_derived(NAME, record)
    return record
