"""Every measure of a variant's accuracy, on answers whose distance is known."""

from __future__ import annotations

import math

import numpy as np
import pytest

from serving.errors import ModelError
from serving.models.variants.accuracy import compare

NAMES = ("one", "two")


def scores(*rows: list[float]) -> list[dict[str, np.ndarray]]:
    return [{"y": np.array([row], np.float32)} for row in rows]


def test_differences_are_over_all_values_of_all_inputs() -> None:
    found = compare(NAMES, scores([1, 2], [3, 4]), scores([1, 2], [3, 3]), None)
    assert found.inputs == 2
    assert found.largest_difference == 1.0
    assert found.mean_difference == 0.25
    expected = (1 + 4 + 9 + 12) / math.sqrt(30 * 23)
    assert found.cosine == pytest.approx(expected)


def test_equal_answers_lose_nothing() -> None:
    answers = scores([0, 0], [0, 0])
    found = compare(NAMES, answers, answers, None)
    assert (found.largest_difference, found.cosine, found.top1_agreement) == (0.0, 1.0, 1.0)


def test_the_cosine_is_that_of_the_worst_output() -> None:
    right = [{"a": np.array([[1.0, 0.0]]), "b": np.array([[100.0, 0.0]])}]
    wrong = [{"a": np.array([[0.0, 1.0]]), "b": np.array([[100.0, 0.0]])}]
    assert compare(["one"], right, wrong, None).cosine == 0.0


def test_top_1_counts_inputs_with_another_largest_score() -> None:
    found = compare(NAMES, scores([1, 2], [4, 3]), scores([0, 9], [3, 4]), None)
    assert found.top1_agreement == 0.5


@pytest.mark.parametrize(
    "answer",
    [
        {"a": np.ones((1, 4)), "b": np.ones((1, 4))},
        {"y": np.ones((1, 3, 4))},
        {"y": np.ones((1, 1))},
        {"y": np.ones((1, 4), np.int64)},
    ],
    ids=["two outputs", "a sequence", "one score", "labels"],
)
def test_what_is_no_classifier_has_no_top_1(answer: dict[str, np.ndarray]) -> None:
    assert compare(["one"], [answer], [answer], None).top1_agreement is None


def test_the_task_counts_what_only_the_parent_does_rightly() -> None:
    def fault(name: str, outputs: dict[str, np.ndarray]) -> str | None:
        wanted = {"one": 1, "two": 0}[name]
        return None if outputs["y"].argmax() == wanted else "wrong"

    right, wrong = [0.0, 1.0], [1.0, 0.0]
    # The first is lost; the second was wrong in the parent already.
    found = compare(NAMES, scores(right, right), scores(wrong, right), fault)
    assert found.task_lost == 0.5


def test_texts_differ_by_one() -> None:
    def texts(*words: bytes) -> list[dict[str, np.ndarray]]:
        return [{"y": np.array([list(words)], np.object_)}]

    found = compare(["one"], texts(b"cat", b"dog"), texts(b"cat", b"fox"), None)
    assert (found.largest_difference, found.mean_difference) == (1.0, 0.5)


def test_another_shape_cannot_be_compared() -> None:
    with pytest.raises(ModelError, match=r"'y' for input 'two' has shape \[1, 3\]"):
        compare(NAMES, scores([1, 2], [1, 2]), scores([1, 2], [1, 2, 3]), None)


def test_an_overflow_is_told() -> None:
    with pytest.raises(ModelError, match="not finite"):
        compare(["one"], scores([1, 2]), scores([1, math.inf]), None)


def test_what_is_not_finite_in_the_parent_either_is_left_out() -> None:
    found = compare(["one"], scores([1, math.nan]), scores([1, 7]), None)
    assert (found.largest_difference, found.cosine) == (0.0, 1.0)
