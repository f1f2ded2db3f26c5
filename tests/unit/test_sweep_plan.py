"""The order of trials: shuffled, interleaved, complete, and the same for the same seed."""

from __future__ import annotations

from loadtest.trials import plan_visits
from tests.sample_trials import settings


def test_every_trial_runs_once_and_each_repeat_visits_every_backend() -> None:
    asked = settings(backends=("a", "b", "c"), levels=(1, 2, 4), repeats=4)
    visits = plan_visits(asked)
    ids = [trial.id for visit in visits for trial in visit.trials]
    assert len(ids) == len(set(ids)) == 3 * 3 * 4
    for repeat in range(4):
        assert {visit.backend for visit in visits[3 * repeat : 3 * repeat + 3]} == {"a", "b", "c"}


def test_the_order_depends_on_the_seed_alone() -> None:
    orders = {
        tuple(t.id for v in plan_visits(settings(seed=seed, repeats=5)) for t in v.trials)
        for seed in (1, 2, 3, 1, 2, 3)
    }
    assert len(orders) == 3


def test_labels_that_differ_have_ids_that_differ() -> None:
    labels = ("fastapi", "fastapi:torch", "remote:http://127.0.0.1:1", "remote:http://127.0.0.1:2")
    visits = plan_visits(settings(backends=labels))
    ids = [trial.id for visit in visits for trial in visit.trials]
    assert len(ids) == len(set(ids))
