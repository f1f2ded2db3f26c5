"""Experiments on arms that are made up: turns, failures, what is kept, what is combined."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from loadtest.playbook import combination
from loadtest.playbook.book import Book
from loadtest.playbook.catalogue import catalogue, chosen
from loadtest.playbook.combination import combine
from loadtest.playbook.experiment import Advice, Bench, Experiment, Lab, Pace, Start
from loadtest.playbook.loader import no_load
from loadtest.playbook.record import Answers, ExperimentRecord, WindowRecord
from loadtest.playbook.run import run
from serving.errors import MachineError, ServerError, UsageError
from serving.models.repository import Model
from tests.sample_trials import manifest
from tests.unit.test_playbook_judging import window

THREE = Pace(starts=3, windows=2, window_s=1.0)


@dataclass
class Made:
    """An arm of a rate; it counts what is up and in which order windows were measured."""

    name: str
    rate: float
    log: list[str] = field(default_factory=list)
    breaks: Exception | None = None
    answers: Answers | None = None
    what: str = "made up"
    start_s: float = 0.5

    def prepare(self, _lab: Lab) -> Start:
        return self._up

    @contextmanager
    def _up(self) -> Iterator[Bench]:
        self.log.append(f"+{self.name}")
        yield self
        self.log.append(f"-{self.name}")

    def window(self, start: int, repeat: int) -> WindowRecord:
        if self.breaks and start == 2:
            raise self.breaks
        self.log.append(self.name)
        return window(self.rate * (1 + start / 1000), start, repeat)

    def rss_bytes(self) -> int:
        return 1000

    def facts(self) -> Mapping[str, str]:
        return {"kind": "made up"}


class Quiet:
    def stage(self, text: str) -> None: ...

    def warning(self, text: str) -> None: ...

    def backend_excluded(self, label: str, reason: str) -> None: ...


@pytest.fixture
def lab(tiny: Model, tmp_path: Path) -> Lab:
    return Lab(tiny, tmp_path / "made-up", tmp_path, (0,), (1,), 2, THREE, Quiet(), no_load)


def experiment(*arms: Made, name: str = "made-up", advice: Advice | None = None) -> Experiment:
    return Experiment(
        name=name,
        title="Made up",
        claim="B is better.",
        usual=(2.0, 3.0),
        page="playbook.md",
        arms=lambda _lab: arms,
        advice=advice,
    )


def test_all_arms_are_up_at_once_and_take_turns(lab: Lab) -> None:
    log: list[str] = []
    record = run(experiment(Made("a", 100, log), Made("b", 250, log)), lab)
    assert (record.verdict, record.judged, record.starts) == ("holds", "b", 3)
    each = len(log) // 3
    for start in range(3):
        part = log[start * each : (start + 1) * each]
        assert part[:2] == ["+a", "+b"]
        assert sorted(part[2:4]) == sorted(part[4:6]) == ["a", "b"]
        assert part[6:] == ["-b", "-a"]
    assert [len(arm.windows) for arm in record.arms] == [6, 6]
    assert record.arms[0].rss_bytes == 1000


def test_a_quick_pace_leaves_out_what_is_only_shown(lab: Lab) -> None:
    arms = (Made("a", 100), Made("b", 250), Made("c", 300))
    assert len(run(experiment(*arms), lab).arms) == 3
    quick = replace(lab, pace=replace(THREE, arms=2))
    assert [arm.name for arm in run(experiment(*arms), quick).arms] == ["a", "b"]


@pytest.mark.parametrize(
    ("error", "failed"),
    [
        (ServerError("it died", hint="Look."), True),
        (MachineError("it has none", hint="Buy one."), False),
        (ZeroDivisionError("a mistake"), True),
    ],
)
def test_what_goes_wrong_is_in_the_record_with_what_was_measured(
    lab: Lab, error: Exception, failed: bool
) -> None:
    log: list[str] = []
    record = run(experiment(Made("a", 100, log), Made("b", 250, log, breaks=error)), lab)
    assert (record.verdict, record.failed) == ("cannot be measured here", failed)
    assert str(error).split()[0] in record.missing
    assert len(record.arms[1].windows) == 2
    assert log[-2:] == ["-b", "-a"] or log[-1] != "b"


def test_a_need_that_is_missing_starts_nothing(lab: Lab) -> None:
    log: list[str] = []
    needy = replace(experiment(Made("a", 1, log), Made("b", 2, log)), missing=lambda _: "no GPU")
    record = run(needy, lab)
    assert (record.verdict, record.missing, record.failed) == (
        "cannot be measured here",
        "no GPU",
        False,
    )
    assert not log


def test_a_baseline_that_answers_wrongly_is_no_baseline(lab: Lab) -> None:
    wrong = Answers(right=False, inputs=1, largest_difference=9.0, detail="all differ")
    record = run(experiment(Made("a", 100, answers=wrong), Made("b", 250)), lab)
    assert record.verdict == "cannot be measured here"
    assert "all differ" in record.missing


def test_an_interruption_is_raised_and_everything_is_down(lab: Lab) -> None:
    log: list[str] = []
    arms = Made("a", 100, log), Made("b", 250, log)
    arms[1].breaks = KeyboardInterrupt()  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        run(experiment(*arms), lab)


def test_a_book_goes_on_where_it_was_and_measures_again_what_is_named(lab: Lab) -> None:
    told: list[str] = []
    book = Book(lab, manifest(), lambda record: told.append(record.name))
    good = experiment(Made("a", 100), Made("b", 250), name="good")
    bad = experiment(Made("a", 1), Made("b", 2, breaks=ServerError("x", hint="y")), name="bad")
    book.measure([good, bad], again=False)
    assert told == ["good", "bad"]
    book.measure([good, bad], again=False)
    assert told == ["good", "bad", "bad"]
    book.measure([good], again=True)
    assert told[3:] == ["good"]
    playbook = book.conclude([good, bad])
    assert [one.name for one in playbook.experiments] == ["good", "bad"]
    assert playbook.complete
    assert not book.conclude([good, bad, replace(good, name="other")]).complete


def known_of(lab: Lab, *experiments: Experiment) -> dict[str, ExperimentRecord]:
    return {one.name: run(one, lab) for one in experiments}


def test_what_helped_is_combined_the_larger_effect_first(
    lab: Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    better = Advice(load={"encoding": "binary"}, setting={"instances": "3"})
    experiments = (
        experiment(Made("a", 100), Made("b", 400), name="wire", advice=better),
        experiment(
            Made("a", 100), Made("b", 200), name="other", advice=Advice(setting={"instances": "2"})
        ),
        experiment(
            Made("a", 100),
            Made("b", 150),
            name="knob",
            advice=Advice(setting={"malloc_arenas": "1"}),
        ),
        experiment(Made("a", 100), Made("b", 50), name="worse", advice=Advice(variant="fp16")),
        experiment(Made("a", 100), Made("b", 900), name="no-advice"),
    )
    measured: list[Experiment] = []

    def measure(test: Experiment, lab: Lab) -> ExperimentRecord:
        measured.append(test)
        return run(experiment(Made("default", 100), Made("combined", 500)), lab)

    monkeypatch.setattr(combination, "run", measure)
    known = known_of(lab, *experiments)
    found = combine(experiments, known, lab)
    assert found is not None
    assert [part.experiment for part in found.parts] == ["wire", "knob"]
    assert found.predicted == pytest.approx(4 * 1.5)
    assert found.left_out == {"other": "knob instances is 3 already", "worse": "opposite"}
    _, changed = measured[0].arms(lab)
    told = "onnxruntime, queue_delay_us=off instances=3 malloc_arenas=1, encoding=binary"
    assert changed.what == told
    assert combine(experiments, known, lab, found) is found
    assert len(measured) == 1


def test_an_unknown_name_lists_the_known() -> None:
    with pytest.raises(UsageError, match="no experiment 'fp17'") as error:
        chosen(["fp17"])
    assert all(name in str(error.value) for name in catalogue())
