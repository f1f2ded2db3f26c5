"""The search of one backend: what was tried, and what is tried next; in Optuna's own storage.

Several processes, also on several machines, may work on one study. Each of its trials is one
setting, told with its goodput or an estimate of it; what else was found are attributes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import optuna
from optuna.storages import BaseStorage
from optuna.storages.journal import JournalFileBackend, JournalStorage
from optuna.trial import FrozenTrial, TrialState
from sqlalchemy.exc import SQLAlchemyError

from loadtest.likeness import differences
from loadtest.tune.budget import Budget
from loadtest.tune.outcome import Outcome, Tried
from loadtest.tune.race import Bar
from loadtest.tune.sampling import SettingSampler, distributions, parameters, point_of
from loadtest.tune.space import Space
from serving.errors import ResultsError, UsageError

optuna.logging.set_verbosity(optuna.logging.ERROR)

_SPACE, _FACTS = "space", "facts"


@dataclass(frozen=True)
class Place:
    """Where a study is kept, and who works on it.

    Attributes:
        storage: a URL of a database, or the path of a journal file; this process's memory if
            ``None``.
        name: of the study in it.
        owner: the results folder, which has the measurements of the settings it has started.
    """

    storage: str | None
    name: str
    owner: str


class TuningStudy:
    """Asks for settings of ``space`` and takes what was found of them."""

    def __init__(self, study: optuna.Study, space: Space, owner: str) -> None:
        self.space = space
        self._study, self._owner = study, owner

    @property
    def tried(self) -> Sequence[Tried]:
        """Every setting that was started, here or elsewhere, in order."""
        notes = self._study.user_attrs
        found = (self._tried(trial, notes) for trial in self._study.get_trials(deepcopy=False))
        return [one for one in found if one is not None]

    @property
    def bar(self) -> Bar:
        """What a setting must beat."""
        return Bar.of([one.outcome for one in self.tried if one.outcome is not None])

    def is_spent(self, budget: Budget) -> bool:
        """Settings count wherever they were started, time where it was spent."""
        tried = self.tried
        spent_s = sum(one.outcome.spent_s for one in tried if one.here and one.outcome is not None)
        return budget.is_spent(len(tried), spent_s)

    def is_over(self, budget: Budget) -> bool:
        """Whether nothing is being measured here, and nothing more would be."""
        return self.unfinished() is None and (self.is_spent(budget) or self._is_exhausted())

    def unfinished(self) -> Tried | None:
        """A setting that a process in this folder has begun and not finished."""
        return next((one for one in self.tried if one.here and one.outcome is None), None)

    def ask(self) -> Tried | None:
        """The next setting; ``None`` when there is none left."""
        while not self._is_exhausted():
            trial = self._study.ask(distributions(self.space))
            self._study.set_user_attr(_owner(trial.number), self._owner)
            point = tuple(int(trial.params[axis.knob]) for axis in self.space.axes)
            if any(one.point == point and one.number < trial.number for one in self.tried):
                # Another machine has asked at the same moment.
                self._study.tell(trial.number, state=TrialState.FAIL)
                continue
            return Tried(trial.number, point, here=True)
        return None

    def tell(self, tried: Tried, outcome: Outcome) -> None:
        # The outcome first: a trial that is over has one.
        self._study.set_user_attr(_outcome(tried.number), outcome.model_dump(mode="json"))
        self._close(tried.number, outcome)

    def begin(self) -> None:
        """Make the default the first setting, unless it is or was."""
        begun = any(one.point == self.space.default for one in self.tried)
        if not begun and not self._study.get_trials(deepcopy=False, states=(TrialState.WAITING,)):
            self._study.enqueue_trial(parameters(self.space, self.space.default))

    def resume(self) -> None:
        """Close what a killed process has measured but not closed."""
        for one in self.tried:
            if one.here and one.outcome is not None:
                self._close(one.number, one.outcome)

    def _close(self, number: int, outcome: Outcome) -> None:
        failed = outcome.estimate_rps is None
        state = TrialState.FAIL if failed else TrialState.COMPLETE
        self._study.tell(number, outcome.estimate_rps, state=state, skip_if_finished=True)

    def _is_exhausted(self) -> bool:
        members = self.space.members
        if members is None:
            return False
        return {one.point for one in self.tried} >= set(members)

    def _tried(self, trial: FrozenTrial, notes: Mapping[str, object]) -> Tried | None:
        """``None`` for what was asked for twice, and what waits for whoever asks first."""
        point, found = point_of(self.space, trial), notes.get(_outcome(trial.number))
        if point is None or (found is None and trial.state.is_finished()):
            return None
        # A process may be killed before it has said who it is.
        here = notes.get(_owner(trial.number), self._owner) == self._owner
        outcome = None if found is None else Outcome.model_validate(found)
        return Tried(trial.number, point, here, outcome)


def open_study(
    place: Place,
    space: Space,
    facts: Mapping[str, str],
    *,
    seed: int,
    allow_unlike: bool = False,
) -> TuningStudy:
    """A new study whose first setting is the default, or the one that is there.

    ``facts`` are machine, model and windows: goodput under other ones is no match, unless
    ``allow_unlike``.

    Raises:
        UsageError: the storage cannot be opened.
        ResultsError: the study is of another space, or was measured under other conditions.
    """
    sampler = SettingSampler(space, seed)
    try:
        study = optuna.create_study(
            storage=_storage(place.storage),
            study_name=place.name,
            sampler=sampler,
            direction="maximize",
            load_if_exists=True,
        )
    except (SQLAlchemyError, ImportError, OSError, ValueError, RuntimeError) as error:
        told = " ".join(str(error).split())
        raise UsageError(
            f"the study cannot be kept in {place.storage!r}: {told[:200]}",
            hint="Give --storage a database that is up, or the path of a file.",
        ) from None
    axes = json.dumps([[axis.knob, *axis.values] for axis in space.axes])
    known = study.user_attrs
    if _SPACE not in known:
        study.set_user_attr(_FACTS, dict(facts))
        study.set_user_attr(_SPACE, axes)
    elif known[_SPACE] != axes:
        raise ResultsError(
            f"the study in {place.storage} searches over other knobs or values",
            hint="Repeat its own options, or choose another --out or --storage.",
        )
    elif not allow_unlike:
        _require_alike(place, known[_FACTS], facts)
    found = TuningStudy(study, space, place.owner)
    found.resume()
    found.begin()
    return found


def search(
    study: TuningStudy,
    budget: Budget,
    evaluate: Callable[[Tried, Bar], Outcome],
    done: Callable[[Tried], None] = lambda _: None,
) -> None:
    """Try settings until the budget is spent or none is left; ``done`` is told each with its end.

    What ``evaluate`` raises ends the search; its setting is tried again at the next call.
    """
    while True:
        tried = study.unfinished()
        if tried is None and not study.is_spent(budget):
            tried = study.ask()
        if tried is None:
            return
        outcome = evaluate(tried, study.bar)
        study.tell(tried, outcome)
        done(Tried(tried.number, tried.point, tried.here, outcome))


def _require_alike(place: Place, known: Mapping[str, str], facts: Mapping[str, str]) -> None:
    unlike = list(differences(known, facts))
    if unlike:
        raise ResultsError(
            f"the study in {place.storage} was measured under other conditions: "
            f"{'; '.join(unlike)}",
            hint="Choose another --out or --storage, or give --allow-unlike.",
        )


def _storage(text: str | None) -> str | BaseStorage | None:
    if text is None or "://" in text:
        return text
    Path(text).parent.mkdir(parents=True, exist_ok=True)
    return JournalStorage(JournalFileBackend(text))


def _owner(number: int) -> str:
    return f"owner {number}"


def _outcome(number: int) -> str:
    return f"outcome {number}"
