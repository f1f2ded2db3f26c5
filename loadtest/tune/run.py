"""The search over settings on real servers, and the last measurement of what it found."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from loadtest.contest import Contest, Prober, SearchListener
from loadtest.folder import file_name
from loadtest.likeness import unlike_servers
from loadtest.objective import parse_objectives
from loadtest.ranking import rank_searches
from loadtest.resources.sampler import Sampler
from loadtest.results import BackendSummary, Ranking
from loadtest.rig import Arm, Rig
from loadtest.searched import SearchRecord
from loadtest.slo.measurable import require_visible
from loadtest.summary import searches_of
from loadtest.tune.budget import Budget
from loadtest.tune.gain import Gain, gain_of
from loadtest.tune.outcome import Outcome, Tried
from loadtest.tune.race import Bar, outcome_of, too_slow
from loadtest.tune.record import (
    NAME,
    DeployRecord,
    TunedBackend,
    TuneRecord,
    arm_name,
    best_of,
    tuned_backend,
)
from loadtest.tune.space import VARIANT, Space
from loadtest.tune.study import TuningStudy, search
from serving.deployable import write_deployable
from serving.deployment import Placement
from serving.errors import InfersweepError, LoadError
from serving.knobs import Setting
from serving.models.repository import Model


class TuneListener(SearchListener, Protocol):
    """Is told what became of each setting, besides what a ``SearchListener`` is told."""

    def setting_done(self, arm: str, changes: Setting, outcome: Outcome) -> None: ...


@dataclass
class Contender:
    """One backend under search.

    Attributes:
        models: by name, the model itself and the variants that may be served in its place.
        excluded: why it is not searched.
    """

    label: str
    space: Space
    study: TuningStudy
    models: Mapping[str, Model]
    excluded: str | None = None

    def arm(self, tried: Tried) -> Arm:
        model = self.model(tried)
        setting = self.launched(tried)
        return Arm(arm_name(self.label, self.space, tried), self.label, model, setting)

    def model(self, tried: Tried) -> Model:
        setting = self.space.setting(tried.point)
        own = next(iter(self.models))
        return self.models[setting.get(VARIANT, own)]

    def launched(self, tried: Tried) -> Setting:
        """What the server is told: nothing for the default."""
        if tried.point == self.space.default:
            return {}
        setting = self.space.setting(tried.point)
        return {knob: value for knob, value in setting.items() if knob != VARIANT}

    @property
    def best(self) -> Tried | None:
        return best_of(self.study.tried)

    @property
    def default(self) -> Tried | None:
        return next((one for one in self.study.tried if one.point == self.space.default), None)


@dataclass
class Tuning:
    """Searches on each backend, then measures defaults and winners again, in turns.

    Attributes:
        repeats: how often; the search itself is none of them, so what it found is not used again.
    """

    rig: Rig
    contenders: Sequence[Contender]
    budget: Budget
    repeats: int
    listener: TuneListener
    _idle_known: bool = field(default=False, init=False)

    def run(self) -> None:
        """Measure what is missing. Everything measured before an exception stays on disk.

        Raises:
            InfersweepError: no backend's default can be searched.
        """
        self.rig.open()
        with Sampler(self.rig.folder.resources) as sampler:
            prober = Prober(self.rig, sampler, self.listener)
            for contender in self.contenders:
                try:
                    self._search(contender, prober)
                except InfersweepError as error:
                    if len(self.contenders) == 1:
                        raise
                    contender.excluded = " ".join(str(error).split())
                    self.listener.backend_excluded(contender.label, contender.excluded)
            if sampler.ended is not None:
                self.listener.warning(f"resources were not sampled to the end: {sampler.ended}")
        if all(contender.excluded for contender in self.contenders):
            raise LoadError(
                f"no backend could be searched: {self.contenders[0].excluded}",
                hint="`infersweep check` shows whether they serve the model at all.",
            )
        arms = [contender.arm(tried) for contender, tried in self._finalists()]
        if arms:
            # The first search of each arm is there already.
            settings = self.rig.settings.model_copy(update={"repeats": 1 + self.repeats})
            Contest(replace(self.rig, settings=settings), arms, self.listener).run()

    def _search(self, contender: Contender, prober: Prober) -> None:
        def evaluate(tried: Tried, bar: Bar) -> Outcome:
            started = time.monotonic()
            outcome = self._outcome(contender, tried, bar, prober)
            return outcome.model_copy(update={"spent_s": time.monotonic() - started})

        def done(tried: Tried) -> None:
            assert tried.outcome is not None
            changes = contender.space.changes(tried.point)
            self.listener.setting_done(contender.arm(tried).name, changes, tried.outcome)

        objectives = parse_objectives(self.rig.settings.objectives)
        require_visible(objectives, self.rig.plan(self.rig.arm(contender.label)))
        search(contender.study, self.budget, evaluate, done)

    def _outcome(self, contender: Contender, tried: Tried, bar: Bar, prober: Prober) -> Outcome:
        arm = contender.arm(tried)
        record = self.rig.records.get(arm.name)
        if record and record.excluded:
            return Outcome(verdict="failed", why=record.excluded)
        if not self._idle_known:
            self.rig.measure_idle(prober.sampler)
            self._idle_known = True
        try:
            prober.search(arm, race=bar.race)
            return outcome_of(prober.state(arm, 1), bar)
        except InfersweepError as error:
            if tried.point == contender.space.default:
                raise
            state = prober.state(arm, 1)
            if isinstance(error, LoadError) and state.bracketed:
                return too_slow(error.what, state, bar)
            self.rig.exclude(arm.name, error)
            return Outcome(verdict="failed", why=" ".join(str(error).split()))

    def _finalists(self) -> Iterator[tuple[Contender, Tried]]:
        """Defaults and winners; nothing where there is but one backend, and its default is best."""
        for contender in self.contenders:
            best, default = contender.best, contender.default
            if contender.excluded or best is None or default is None:
                continue
            if best.number != default.number:
                yield contender, best
            if best.number != default.number or len(self.contenders) > 1:
                yield contender, default

    def conclude(self) -> TuneRecord:
        """Write what is known by now: ``tune.json``, and what to deploy."""
        folder, settings = self.rig.folder, self.rig.settings
        manifest, trials = folder.read_manifest(), folder.read_trials()
        again = [
            one
            for one in searches_of(settings, trials, folder.read_histograms)
            if one.repeat > 1 and one.complete
        ]
        backends = tuple(self._concluded(contender, again) for contender in self.contenders)
        record = TuneRecord(
            manifest=manifest,
            budget=self.budget.text,
            repeats=self.repeats,
            complete=all(one.complete for one in backends),
            backends=backends,
            ranking=self._ranking(again),
        )
        folder.write_derived(NAME, record)
        return record

    def _concluded(self, contender: Contender, again: Sequence[SearchRecord]) -> TunedBackend:
        tried = contender.study.tried
        record = tuned_backend(
            contender.label,
            contender.space,
            tried,
            self.rig.settings.objectives,
            self._gain(contender, again),
            searched=contender.study.is_over(self.budget),
            excluded=contender.excluded,
        )
        chosen = next((one for one in tried if one.number == record.chosen), None)
        if chosen is None:
            return record
        return record.model_copy(update={"deploy": self._deploy(contender, chosen)})

    def _gain(self, contender: Contender, again: Sequence[SearchRecord]) -> Gain | None:
        """``None`` until every repeat of both is measured."""
        best, default = contender.best, contender.default
        if best is None or default is None or best.number == default.number:
            return None
        (default_rps, default_done), (best_rps, best_done) = (
            _rates(contender.arm(one).name, again) for one in (default, best)
        )
        reachable = default.outcome is None or default.outcome.verdict != "not reachable"
        if best_done < self.repeats or (reachable and default_done < self.repeats):
            return None
        return gain_of(default_rps, best_rps, best_done)

    def _ranking(self, again: Sequence[SearchRecord]) -> Ranking:
        arms = [contender.arm(tried) for contender, tried in self._finalists()]
        unlike = unlike_servers(self.rig.settings.backends, self.rig.records)
        unranked = {} if self.rig.settings.rank_unlike else unlike
        out = {arm.name: unranked[arm.backend] for arm in arms if arm.backend in unranked}
        return rank_searches([_bare(arm.name) for arm in arms], again, out)

    def _deploy(self, contender: Contender, chosen: Tried) -> DeployRecord:
        settings, folder = self.rig.settings, self.rig.folder
        place = folder.path / "deploy" / file_name(contender.label)
        written = write_deployable(
            contender.label,
            contender.model(chosen),
            contender.launched(chosen),
            Placement(settings.server_cpus, self.rig.usable_cpus, slo_ms=settings.slo_ms),
            place,
        )
        return DeployRecord(
            folder=str(place.relative_to(folder.path)),
            files={_name(file, place): file.read_text(encoding="utf-8") for file in written.files},
            commands=written.commands,
        )


def _name(file: Path, folder: Path) -> str:
    return str(file.relative_to(folder))


def _rates(arm: str, again: Sequence[SearchRecord]) -> tuple[list[float], int]:
    """The rate of each repeat that found one, and how many repeats there are."""
    own = [one for one in again if one.backend == arm]
    return [one.found_rps for one in own if one.found_rps is not None], len(own)


def _bare(label: str) -> BackendSummary:
    return BackendSummary(
        label=label, facts={}, warnings=(), parity=None, start_s=None, excluded=None, points=()
    )
