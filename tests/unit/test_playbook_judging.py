"""From windows to ratios and verdicts."""

from __future__ import annotations

import pytest

from loadtest.playbook.judging import (
    MATTERS,
    effect_of,
    sentence_of,
    values_of,
    verdict_of,
)
from loadtest.playbook.record import Answers, ArmRecord, Effect, WindowRecord

RIGHT = Answers(right=True, inputs=8, largest_difference=0.0)
NOISE = (0.99, 1.0, 1.01)


def window(rate: float, start: int = 1, repeat: int = 1, **more: object) -> WindowRecord:
    settled: dict[str, object] = {
        "start": start,
        "repeat": repeat,
        "count": 100,
        "inferences_per_s": rate,
        "p50_ms": 1e3 / rate,
        "p99_ms": 2e3 / rate,
        "slowest_ms": 3e3 / rate,
    }
    return WindowRecord.model_validate(settled | more)


def arm(name: str, rate: float, **more: object) -> ArmRecord:
    windows = tuple(window(rate * share, start) for start, share in enumerate(NOISE, 1))
    return ArmRecord.model_validate({"name": name, "what": name, "windows": windows} | more)


def effect(ratio: float, spread: float = 0.01) -> Effect:
    return Effect(arm="b", ratio=ratio, low=ratio - spread, high=ratio + spread, repeats=3)


@pytest.mark.parametrize("measure", ["throughput", "p50", "p99", "slowest"])
def test_above_one_is_better_whatever_is_measured(measure: str) -> None:
    found = effect_of(arm("a", 100), arm("b", 200), measure)  # type: ignore[arg-type]
    assert found.ratio == pytest.approx(2)
    assert found.low is not None
    assert found.high is not None
    assert 1 < found.low < 2 < found.high


def test_windows_of_one_start_count_each_and_of_several_starts_together() -> None:
    alone = ArmRecord(name="a", what="", windows=tuple(window(r, 1) for r in (1, 4)))
    assert values_of(alone, "throughput") == [1, 4]
    apart = (window(1, 1), window(4, 1), window(9, 2))
    found = values_of(ArmRecord(name="a", what="", windows=apart), "throughput")
    assert found == pytest.approx([2, 9])


def test_a_window_that_is_invalid_or_has_no_such_value_does_not_count() -> None:
    windows = (window(5), window(7, reasons=("client-bound",)), window(9, p99_ms=None))
    mixed = ArmRecord(name="a", what="", windows=windows)
    assert values_of(mixed, "throughput") == [5, 9]
    assert values_of(mixed, "p99") == [2e3 / 5]


def test_without_values_there_is_no_ratio_and_memory_is_told_even_so() -> None:
    found = effect_of(
        ArmRecord(name="a", what="", rss_bytes=100, start_s=(1.0, 2.0)),
        ArmRecord(name="b", what="", rss_bytes=150, start_s=(4.0,)),
        "throughput",
    )
    assert (found.ratio, found.memory_ratio, found.memory_bytes) == (None, 1.5, 50)
    assert found.start_s == 2.5
    assert verdict_of(found, None, (2, 3)) == "cannot be measured here"


@pytest.mark.parametrize(
    ("found", "verdict"),
    [
        (effect(3.0), "holds"),
        (effect(5.0), "holds"),
        (effect(1.99, 0.02), "holds"),
        (effect(1.5), "holds in part"),
        (effect(1.0), "no difference"),
        (effect(1.4, 0.5), "no difference"),
        (effect(1.5, 0.6), "cannot be measured here"),
        (effect(0.5), "opposite"),
        (effect(1 + (MATTERS - 1) / 2, 0.001), "no difference"),
        (effect(1 / (1 + (MATTERS - 1) / 2), 0.001), "no difference"),
    ],
)
def test_the_interval_decides_against_what_people_state(found: Effect, verdict: str) -> None:
    assert verdict_of(found, RIGHT, (2.0, 4.0)) == verdict


def test_wrong_answers_end_the_matter_unless_few_are_allowed() -> None:
    wrong = Answers(
        right=False, inputs=200, largest_difference=1.0, lost=0.005, lost_measure="task"
    )
    assert verdict_of(effect(3.0), wrong, (2, 4)) == "breaks accuracy"
    assert verdict_of(effect(3.0), wrong, (2, 4), may_lose=True) == "holds"
    lost = wrong.model_copy(update={"lost": 0.02})
    assert verdict_of(effect(3.0), lost, (2, 4), may_lose=True) == "breaks accuracy"
    assert "2.0% of answers lost (task)" in sentence_of("breaks accuracy", None, lost, (2, 4))


def test_the_sentence_has_the_ratio_its_interval_and_what_people_state() -> None:
    told = sentence_of("holds in part", effect(1.5), RIGHT, (2.0, None))
    assert told == (
        "Holds in part: 1.50 times the baseline (1.49 to 1.51); 2 times or more is what people "
        "state."
    )
