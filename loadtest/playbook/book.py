"""All experiments of one model: each on disk as soon as it is over, resumable, and alone again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import log

from loadtest.folder import ResultsFolder
from loadtest.playbook.combination import combine
from loadtest.playbook.experiment import Experiment, Lab
from loadtest.playbook.record import NAME, Combination, ExperimentRecord, Playbook
from loadtest.playbook.run import run
from loadtest.results import Manifest

_COMBINATION = "combination"


@dataclass
class Book:
    """The experiments in one results folder.

    Attributes:
        lab: its folder is the playbook's own.
        done: is told of each experiment that has ended.
    """

    lab: Lab
    manifest: Manifest
    done: Callable[[ExperimentRecord], None]

    def measure(self, experiments: Sequence[Experiment], *, again: bool) -> None:
        """Those that are not measured yet, or all of them ``again``.

        One that cannot be measured leaves the others standing.
        """
        for experiment in experiments:
            known = self.read(experiment.name)
            if known is not None and not known.failed and not again:
                continue
            folder = self.lab.folder / "logs" / experiment.name
            shutil.rmtree(folder, ignore_errors=True)
            self.lab.listener.stage(experiment.title)
            record = run(experiment, replace(self.lab, folder=folder))
            self._folder.write_derived(f"experiments/{experiment.name}.json", record)
            self.done(record)

    def combine(self, experiments: Sequence[Experiment]) -> None:
        """Everything that helped at once, where anything did; measured when that changed."""
        known = {record.name: record for record in self.records(experiments)}
        folder, before = self.lab.folder / "logs" / _COMBINATION, self._read_combination()
        found = combine(experiments, known, replace(self.lab, folder=folder), before)
        if found is None:
            (self.lab.folder / f"{_COMBINATION}.json").unlink(missing_ok=True)
        elif found is not before:
            self._folder.write_derived(f"{_COMBINATION}.json", found)
            self.done(found.experiment)

    def _read_combination(self) -> Combination | None:
        if not (self.lab.folder / f"{_COMBINATION}.json").is_file():
            return None
        return self._folder.read_derived(f"{_COMBINATION}.json", Combination)

    @property
    def _folder(self) -> ResultsFolder:
        (self.lab.folder / "experiments").mkdir(parents=True, exist_ok=True)
        return ResultsFolder(self.lab.folder)

    def read(self, name: str) -> ExperimentRecord | None:
        """Raises ResultsError when it is damaged."""
        path = self.lab.folder / "experiments" / f"{name}.json"
        return (
            self._folder.read_derived(f"experiments/{name}.json", ExperimentRecord)
            if path.is_file()
            else None
        )

    def records(self, experiments: Sequence[Experiment]) -> list[ExperimentRecord]:
        """Those that are on disk, the largest effect first, what could not be measured last."""
        found = [record for one in experiments if (record := self.read(one.name))]
        return sorted(found, key=_rank)

    def conclude(self, experiments: Sequence[Experiment]) -> Playbook:
        """Derive and write ``playbook.json`` from what is on disk."""
        records = self.records(experiments)
        made = self.manifest
        playbook = Playbook(
            model=self.lab.model.name,
            model_sha256=made.model_sha256,
            machine=made.machine,
            versions=made.versions,
            commit=made.commit,
            started=min((record.started for record in records), default=made.created),
            server_cpus=self.lab.server_cpus,
            client_cpus=self.lab.client_cpus,
            pace=str(self.lab.pace),
            command=made.command,
            complete=len(records) == len(experiments),
            experiments=tuple(records),
            combination=self._read_combination(),
        )
        self._folder.write_derived(NAME, playbook)
        return playbook


def _rank(record: ExperimentRecord) -> tuple[bool, float, str]:
    ratio = record.effect.ratio if record.effect else None
    missing = record.verdict == "cannot be measured here"
    return missing, -abs(log(ratio)) if ratio else 0.0, record.name
