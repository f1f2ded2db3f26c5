"""Which requests run together, seen through a model that notes its batches. No sleeps."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from serving.batching import Batcher, QueueFullError
from serving.models.config import DynamicBatching, ModelConfig, TensorSpec
from serving.protocol import Array


class Gate:
    """Doubles its input; waits before each batch until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.entered = threading.Event()
        self.batches: list[int] = []

    def __call__(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        self.entered.set()
        assert self.open.wait(10)
        self.batches.append(inputs["x"].shape[0])
        if (inputs["x"] < 0).any():
            raise ValueError("negative")
        return {"y": inputs["x"] * 2}


def config(*, batching: bool = True, delay_ns: int = 0, most: int = 4) -> ModelConfig:
    spec = (TensorSpec("x", "FP32", (-1,)),)
    return ModelConfig(
        "m",
        "onnxruntime",
        most,
        spec,
        spec,
        dynamic_batching=DynamicBatching(delay_ns) if batching else None,
    )


def row(value: float, width: int = 2, rows: int = 1) -> dict[str, Array]:
    return {"x": np.full((rows, width), value, np.float32)}


@pytest.fixture
def gate() -> Iterator[Gate]:
    made = Gate()
    yield made
    made.open.set()


def blocked(gate: Gate, batcher: Batcher) -> None:
    """Put one request into the model, so that the next ones wait in the queue together."""
    batcher.submit(row(0.0), 1)
    assert gate.entered.wait(10)


def test_waiting_requests_run_together_and_get_their_own_rows(gate: Gate) -> None:
    batcher = Batcher(config(), [gate], queue_limit=100)
    blocked(gate, batcher)
    futures = [batcher.submit(row(float(n)), 1) for n in range(6)]
    gate.open.set()
    answers = [future.result(10) for future in futures]
    assert [float(a.outputs["y"][0, 0]) for a in answers] == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
    batcher.close()
    assert gate.batches == [1, 4, 2]


def test_unequal_shapes_and_too_many_rows_stay_apart(gate: Gate) -> None:
    batcher = Batcher(config(), [gate], queue_limit=100)
    blocked(gate, batcher)
    sizes = [(2, 1), (3, 1), (2, 3), (2, 1)]
    futures = [batcher.submit(row(1.0, width, rows), rows) for width, rows in sizes]
    gate.open.set()
    for (width, rows), future in zip(sizes, futures, strict=True):
        assert future.result(10).outputs["y"].shape == (rows, width)
    batcher.close()
    assert gate.batches == [1, 4, 1, 1]


def test_without_a_batcher_each_runs_alone(gate: Gate) -> None:
    batcher = Batcher(config(batching=False), [gate], queue_limit=100)
    gate.open.set()
    for future in [batcher.submit(row(1.0), 1) for _ in range(5)]:
        future.result(10)
    batcher.close()
    assert gate.batches == [1] * 5


def test_a_full_batch_does_not_wait_for_the_delay(gate: Gate) -> None:
    batcher = Batcher(config(delay_ns=3_600 * 10**9), [gate], queue_limit=100)
    gate.open.set()
    for future in [batcher.submit(row(1.0), 1) for _ in range(4)]:
        assert future.result(10).batch_rows == 4
    lonely = batcher.submit(row(1.0), 1)
    batcher.close()
    assert lonely.result(10).batch_rows == 1


def test_one_bad_request_fails_alone(gate: Gate) -> None:
    batcher = Batcher(config(), [gate], queue_limit=100)
    blocked(gate, batcher)
    good, bad, other = (batcher.submit(row(value), 1) for value in (1.0, -1.0, 3.0))
    gate.open.set()
    assert float(good.result(10).outputs["y"][0, 0]) == 2.0
    assert float(other.result(10).outputs["y"][0, 0]) == 6.0
    with pytest.raises(ValueError, match="negative"):
        bad.result(10)
    batcher.close()


def test_a_full_queue_refuses_at_once(gate: Gate) -> None:
    batcher = Batcher(config(), [gate], queue_limit=2)
    blocked(gate, batcher)
    for _ in range(2):
        batcher.submit(row(1.0), 1)
    with pytest.raises(QueueFullError):
        batcher.submit(row(1.0), 1)


def test_a_cancelled_request_costs_no_inference(gate: Gate) -> None:
    batcher = Batcher(config(), [gate], queue_limit=9)
    blocked(gate, batcher)
    assert batcher.submit(row(1.0), 1).cancel()
    gate.open.set()
    batcher.close()
    assert gate.batches == [1]
