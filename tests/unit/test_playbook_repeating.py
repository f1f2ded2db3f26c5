"""Inputs that differ, made of a model's samples."""

from __future__ import annotations

from itertools import islice

import numpy as np

from loadtest.playbook.repeating import varied


def test_no_two_of_the_inputs_are_equal_and_all_values_are_those_of_a_sample() -> None:
    rng = np.random.default_rng(3)
    samples = [{"x": np.arange(first, first + 40, dtype=np.float32)[None]} for first in (0, 100)]
    made = [inputs["x"] for inputs in islice(varied(samples, rng), 60)]
    assert len({array.tobytes() for array in made}) == 60
    for array in made:
        (sample,) = (one["x"] for one in samples if (array != one["x"]).sum() <= 1)
        assert (array.shape, array.dtype) == (sample.shape, sample.dtype)
        assert np.isin(array, sample).all()


def test_a_sample_itself_is_left_as_it_was() -> None:
    sample = np.arange(40, dtype=np.int64)[None]
    list(islice(varied([{"ids": sample}], np.random.default_rng(3)), 20))
    assert np.array_equal(sample[0], np.arange(40))


def test_the_input_with_most_different_values_is_changed() -> None:
    sample = {"ids": np.arange(40)[None], "mask": np.tile([0, 1], 20)[None]}
    for inputs in islice(varied([sample], np.random.default_rng(3)), 20):
        assert np.array_equal(inputs["mask"], sample["mask"])


def test_text_that_differs_is_told_apart() -> None:
    words = np.array([[b"a", b"b", b"c"]], dtype=np.object_)
    made = [
        inputs["text"].tolist() for inputs in varied([{"text": words}], np.random.default_rng(3))
    ]
    # The sample, and each of three places with one of the two other words.
    assert len(made) == len({str(one) for one in made}) == 1 + 3 * 2


def test_an_input_of_one_value_gives_nothing_but_itself() -> None:
    zeros = {"x": np.zeros((1, 8), np.float32)}
    assert len(list(varied([zeros], np.random.default_rng(3)))) == 1
