"""Lengths of free axes: one for each name, computed where a name says how, asked for otherwise."""

from __future__ import annotations

import pytest

from serving.errors import UsageError
from serving.importing.axes import GivenLengths, lengths_for, shapes_for
from serving.models.inspection import GraphTensor

DECODER = (
    GraphTensor("ids", "INT64", ("batch", "seq")),
    GraphTensor("cache", "FP32", ("batch", 2, "past", 8)),
    GraphTensor("mask", "INT64", ("batch", "past + seq")),
    GraphTensor("step", "INT64", ()),
)


def shapes(given: GivenLengths) -> dict[str, tuple[int, ...]]:
    return shapes_for(DECODER, lengths_for(DECODER, given))


def test_what_is_computed_follows() -> None:
    expected = {"ids": (1, 3), "cache": (1, 2, 5, 8), "mask": (1, 8), "step": (1,)}
    assert shapes(GivenLengths({"seq": 3, "past": 5})) == expected
    assert shapes(GivenLengths({"past": 5}, {"ids": (1, 3)})) == expected
    assert shapes(GivenLengths({"seq": 3, "batch": 2, "past": 5}))["mask"] == (2, 8)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (GivenLengths({"seq": 3}), r"axis 'past' of input 'cache' \[batch, 2, past, 8\] is not"),
        (GivenLengths({}), "axis 'seq' of input 'ids' .*, 'past' of input 'cache' .* is not known"),
        (GivenLengths({"seq": 3, "past": 5}, {"mask": (1, 9)}), "given as 9 and comes to 8"),
        (GivenLengths({"seq": 3, "past": 5}, {"cache": (1, 3, 5, 8)}), "says 3 where axis 2 is 2"),
        (GivenLengths({"seq": 3, "past": 5, "rows": 1}), "no input has an axis 'rows'"),
        (GivenLengths({"seq": 3, "past": 5}, {"keys": (1,)}), "no input 'keys'"),
    ],
)
def test_what_is_missing_or_contradicts_is_named(given: GivenLengths, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        shapes(given)


def test_a_name_that_only_looks_like_a_difference_is_a_name() -> None:
    tensors = (GraphTensor("x", "FP32", ("batch-size", "a.b", "f(x)", "4", "?")),)
    lengths = {"a.b": 2, "f(x)": 3, "4": 4, "x:4": 5}
    assert shapes_for(tensors, lengths_for(tensors, GivenLengths(lengths))) == {
        "x": (1, 2, 3, 4, 5)
    }


def test_a_difference_below_one_is_told() -> None:
    tensors = (GraphTensor("x", "FP32", ("n", "n - 4")),)
    with pytest.raises(UsageError, match=r"'x' \[n, n - 4\] would be empty: \[3, -1\]"):
        shapes_for(tensors, lengths_for(tensors, GivenLengths({"n": 3})))
