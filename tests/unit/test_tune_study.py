"""A search over settings whose goodput is known: what it finds, and what a kill leaves of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import median

import pytest

from benchmarks.landscapes import LANDSCAPES, hill
from loadtest.tune.budget import Budget
from loadtest.tune.outcome import Outcome, Tried
from loadtest.tune.race import Bar
from loadtest.tune.record import best_of
from loadtest.tune.space import Point, Space
from loadtest.tune.study import Place, TuningStudy, open_study, search
from serving.errors import ResultsError, UsageError
from serving.knobs import Axis, Setting

FACTS = {"CPU": "A processor", "model checksum": "0"}


class StoppedError(Exception):
    """In place of a kill: nothing that comes after the moment runs."""


def space_of(*sizes: int, refusal: Callable[[Setting], str] = lambda _: "") -> Space:
    """The default is the first value of each axis."""
    axes = (Axis(f"k{i}", tuple(map(str, range(n))), "0") for i, n in enumerate(sizes))
    return Space(tuple(axes), refusal)


def study_in(folder: Path, space: Space, owner: str = "here", **changes: object) -> TuningStudy:
    given = {"facts": FACTS, "storage": f"sqlite:///{folder}/db", **changes}
    place = Place(str(given["storage"]), "a study", owner)
    facts = {name: str(value) for name, value in dict(given["facts"]).items()}
    unlike = bool(given.get("allow_unlike", False))
    return open_study(place, space, facts, seed=1, allow_unlike=unlike)


def study_of(space: Space, seed: int = 1) -> TuningStudy:
    """In memory."""
    return open_study(Place(None, "a study", "here"), space, FACTS, seed=seed)


def searched(rate_rps: float) -> Outcome:
    return Outcome(
        verdict="searched",
        why="",
        goodput_rps=rate_rps,
        estimate_rps=rate_rps,
        capacity_rps=rate_rps,
        spent_s=1.0,
    )


def flat(_tried: Tried, _bar: Bar) -> Outcome:
    return searched(100.0)


def test_the_default_is_tried_first() -> None:
    space = space_of(3, 3)
    study = study_of(space)
    search(study, Budget(settings=1), flat)
    assert [one.point for one in study.tried] == [space.default]


def test_nothing_senseless_and_nothing_twice_is_measured() -> None:
    space = space_of(4, 3, refusal=lambda setting: "odd" if setting["k0"] == "1" else "")
    study = study_of(space)
    search(study, Budget(settings=1_000), flat)
    points = [one.point for one in study.tried]
    assert space.members is not None
    assert sorted(points) == sorted(space.members)
    assert study.ask() is None


def test_a_budget_of_settings_counts_every_one_that_was_started() -> None:
    def every_third_fails(tried: Tried, bar: Bar) -> Outcome:
        if tried.number % 3:
            return flat(tried, bar)
        return Outcome(verdict="failed", why="it did not start")

    study = study_of(space_of(4, 4))
    done: list[Tried] = []
    search(study, Budget(settings=7), every_third_fails, done.append)
    assert len(study.tried) == len(done) == 7


def test_a_budget_of_time_counts_what_was_spent() -> None:
    study = study_of(space_of(4, 4))
    search(study, Budget(seconds=3.0), flat)
    assert len(study.tried) == 3


def test_a_search_that_was_killed_goes_on_with_the_very_setting(tmp_path: Path) -> None:
    space = space_of(4, 4)
    begun: list[Tried] = []

    def killed_at_the_third(tried: Tried, bar: Bar) -> Outcome:
        begun.append(tried)
        if len(begun) == 3:
            raise StoppedError
        return searched(100.0 + sum(tried.point))

    with pytest.raises(StoppedError):
        search(study_in(tmp_path, space), Budget(settings=5), killed_at_the_third)
    again = study_in(tmp_path, space)
    search(again, Budget(settings=5), killed_at_the_third)
    assert begun[3] == begun[2]
    assert len(again.tried) == 5
    assert all(one.outcome for one in again.tried)


def test_what_was_measured_but_not_closed_before_a_kill_is_not_measured_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    space, measured = space_of(3, 3), []

    def count(tried: Tried, bar: Bar) -> Outcome:
        measured.append(tried.number)
        return flat(tried, bar)

    study = study_in(tmp_path, space)

    def die(*_: object) -> None:
        raise StoppedError

    with monkeypatch.context() as patched:
        patched.setattr(study, "_close", die)
        with pytest.raises(StoppedError):
            search(study, Budget(settings=2), count)
    search(study_in(tmp_path, space), Budget(settings=2), count)
    assert measured == [0, 1]


def test_two_machines_share_one_search_and_measure_nothing_twice(tmp_path: Path) -> None:
    space = space_of(4, 4)
    storage = str(tmp_path / "shared.journal")
    one = study_in(tmp_path, space, "one", storage=storage)
    two = study_in(tmp_path, space, "two", storage=storage)
    first, second = one.ask(), two.ask()
    assert first is not None
    assert second is not None
    assert first.point != second.point
    assert one.unfinished() == first
    assert two.unfinished() == second
    one.tell(first, searched(100.0))
    assert two.bar.best_rps == 100.0
    two.tell(second, searched(120.0))
    search(one, Budget(settings=6), flat)
    assert len({tried.point for tried in two.tried}) == len(two.tried) == 6
    best = best_of(one.tried)
    assert best is not None
    assert (best.point, best.here) == (second.point, False)


def test_another_kind_of_machine_is_refused_unless_asked(tmp_path: Path) -> None:
    space = space_of(2, 2)
    study_in(tmp_path, space)
    other = {**FACTS, "CPU": "Another processor"}
    with pytest.raises(ResultsError, match="CPU: A processor against Another processor"):
        study_in(tmp_path, space, facts=other)
    assert study_in(tmp_path, space, facts=other, allow_unlike=True).tried == []


def test_another_space_is_refused(tmp_path: Path) -> None:
    study_in(tmp_path, space_of(2, 2))
    with pytest.raises(ResultsError, match="other knobs or values"):
        study_in(tmp_path, space_of(2, 3))


@pytest.mark.parametrize(
    "storage",
    ["nosuch://host/db", "postgresql://", "sqlite:////no/such/folder/db", "/proc/no/file"],
)
def test_a_storage_that_cannot_be_opened_is_one_line(tmp_path: Path, storage: str) -> None:
    with pytest.raises(UsageError, match="cannot be kept") as told:
        study_in(tmp_path, space_of(2, 2), storage=storage)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("name", ["batching", "ridge", "hill", "together"])
def test_a_quarter_of_the_settings_finds_95_percent_of_the_best_under_noise(name: str) -> None:
    land = LANDSCAPES[name]
    space, table = land.space, land.goodput
    assert space.members is not None
    best = max(map(table, space.members))
    found = []
    for seed in range(3):
        noise = Random(seed)

        def measured(tried: Tried, _bar: Bar, noise: Random = noise) -> Outcome:
            return searched(table(tried.point) * (1 + noise.gauss(0, 0.02)))

        study = study_of(space, seed)
        search(study, Budget(settings=int(land.share * len(space.members))), measured)
        winner = best_of(study.tried)
        assert winner is not None
        found.append(table(winner.point) / best)
    assert median(found) >= 0.95
    assert min(found) >= 0.93


def test_estimates_of_settings_that_were_left_teach_the_search() -> None:
    """Only what beats the best is told exactly; of the rest an estimate that is off by a tenth."""
    space = space_of(8, 8)
    assert space.members is not None
    best = max(map(hill, space.members))

    def raced(tried: Tried, bar: Bar) -> Outcome:
        rate_rps = hill(tried.point)
        if bar.best_rps is None or rate_rps > bar.best_rps:
            return searched(rate_rps)
        guess_rps = rate_rps * Random(tried.number).uniform(0.9, 1.1)
        estimate_rps = min(guess_rps, bar.best_rps)
        return Outcome(verdict="pruned", why="too slow", estimate_rps=estimate_rps)

    for seed in range(2):
        study = study_of(space, seed)
        search(study, Budget(settings=16), raced)
        winner = best_of(study.tried)
        assert winner is not None
        assert hill(winner.point) >= 0.95 * best


def test_a_space_too_large_to_list_is_searched_all_the_same() -> None:
    """Nine values on six axes, each a little better towards its middle."""
    space = space_of(*[9] * 6)
    assert space.members is None

    def bowl(point: Point) -> float:
        return 100 - sum((rank - 4) ** 2 for rank in point)

    study = study_of(space)
    search(study, Budget(settings=30), lambda tried, _: searched(bowl(tried.point)))
    rng = Random(1)
    chance = [max(bowl(point) for point in space.draw(rng, 30)) for _ in range(20)]
    winner = best_of(study.tried)
    assert winner is not None
    assert bowl(winner.point) > median(chance)
