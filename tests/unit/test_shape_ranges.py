"""Shape ranges for TensorRT: derived from the batch size, or given whole."""

from __future__ import annotations

import pytest

from serving.errors import ModelError
from serving.models.config import ModelConfig, TensorSpec
from serving.models.scheduling import DynamicBatching
from serving.shape_ranges import OPTIONS, best_shapes, shape_ranges

LEAST, BEST, MOST = OPTIONS


def config(
    *dims: tuple[int, ...], most: int = 8, preferred: tuple[int, ...] | None = None
) -> ModelConfig:
    return ModelConfig(
        "m",
        "onnxruntime",
        most,
        tuple(TensorSpec(f"x{at}", "FP32", shape) for at, shape in enumerate(dims)),
        (),
        dynamic_batching=None if preferred is None else DynamicBatching(0, preferred),
    )


def test_a_batched_model_has_the_range_of_its_batches() -> None:
    assert shape_ranges(config((3, 4), (2,)), {}) == {
        LEAST: "x0:1x3x4,x1:1x2",
        BEST: "x0:8x3x4,x1:8x2",
        MOST: "x0:8x3x4,x1:8x2",
    }


def test_the_best_batch_is_the_largest_preferred() -> None:
    assert shape_ranges(config((3,), preferred=(2, 4)), {})[BEST] == "x0:4x3"


def test_one_shape_needs_no_range() -> None:
    model = config((3, 4), most=0)
    assert shape_ranges(model, {}) == {}
    assert best_shapes(model, {}) == {"x0": (3, 4)}


def test_the_first_run_has_the_best_shape() -> None:
    given = {LEAST: "x0:1x3x32", BEST: "x0:2x3x64", MOST: "x0:8x3x128"}
    model = config((3, -1))
    assert best_shapes(model, shape_ranges(model, given)) == {"x0": (2, 3, 64)}


@pytest.mark.parametrize(
    ("dims", "given", "told"),
    [
        ([(3, -1)], {}, "x0 has a free axis"),
        ([(3,)], {LEAST: "x0:1x3", MOST: "x0:8x3"}, f"without {BEST}"),
        ([(3,)], {BEST: "x0:1x3"}, f"without {LEAST}, {MOST}"),
        ([(3,), (2,)], dict.fromkeys(OPTIONS, "x0:1x3"), "no shape for x1"),
        ([(3,)], dict.fromkeys(OPTIONS, "x0=1x3"), "name:1x3x224x224"),
        ([(3,)], {LEAST: "x0:4x3", BEST: "x0:2x3", MOST: "x0:8x3"}, "smallest <= best <= largest"),
        ([(3,)], {LEAST: "x0:1x3", BEST: "x0:1x3", MOST: "x0:8x3x1"}, "smallest <= best"),
    ],
)
def test_half_a_range_is_refused(
    dims: list[tuple[int, ...]], given: dict[str, str], told: str
) -> None:
    with pytest.raises(ModelError, match=told):
        shape_ranges(config(*dims), given)
