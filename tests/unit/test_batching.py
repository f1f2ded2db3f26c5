"""Which requests run together, seen through a model that notes its batches. No sleeps."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping

import numpy as np
import pytest

from serving.batching import Batcher, QueueFullError
from serving.errors import ServerError
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


def test_two_shapes_run_side_by_side_on_two_instances() -> None:
    release, started = threading.Event(), threading.Semaphore(0)

    def run(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        started.release()
        assert release.wait(10)
        return {"y": inputs["x"]}

    batcher = Batcher(config(most=2), [run, run], queue_limit=9)
    for width in (1, 2, 1, 2):
        batcher.submit(row(1.0, width), 1)
    assert started.acquire(timeout=10)
    assert started.acquire(timeout=10)
    release.set()
    batcher.close()


def test_an_output_without_its_rows_is_an_error_not_an_empty_answer(gate: Gate) -> None:
    gate.open.set()
    batcher = Batcher(config(), [lambda _: {"y": np.zeros((1, 3))}], queue_limit=9)
    with pytest.raises(ServerError, match=r"shape \[1, 3\] for a batch of 2"):
        batcher.submit(row(1.0, rows=2), 2).result(10)
    batcher.close()


def test_a_model_without_a_batch_axis_runs_alone(gate: Gate) -> None:
    batcher = Batcher(config(batching=False, most=0), [gate], queue_limit=9)
    blocked(gate, batcher)
    futures = [batcher.submit({"x": np.full(n, 1.0)}, 1) for n in (3, 3, 4)]
    gate.open.set()
    assert [future.result(10).outputs["y"].shape for future in futures] == [(3,), (3,), (4,)]
    batcher.close()


def test_a_preferred_size_leaves_before_the_delay(gate: Gate) -> None:
    spec = (TensorSpec("x", "FP32", (-1,)),)
    batching = DynamicBatching(3_600 * 10**9, (2,))
    model = ModelConfig("m", "onnxruntime", 8, spec, spec, dynamic_batching=batching)
    batcher = Batcher(model, [gate], queue_limit=9)
    gate.open.set()
    futures = [batcher.submit(row(1.0), 1) for _ in range(2)]
    assert [future.result(10).batch_rows for future in futures] == [2, 2]
    batcher.close()


def test_durations_and_batches_are_reported(gate: Gate) -> None:
    seen: list[int] = []
    batcher = Batcher(config(), [gate], queue_limit=9, on_batch=seen.append)
    blocked(gate, batcher)
    futures = [batcher.submit(row(1.0), 1) for _ in range(3)]
    gate.open.set()
    answers = [future.result(10) for future in futures]
    assert all(answer.queue_ns > 0 and answer.compute_ns > 0 for answer in answers)
    assert answers[0].queue_ns >= answers[-1].queue_ns
    batcher.close()
    assert seen == [1, 3]


def test_a_closed_batcher_finishes_its_queue_and_takes_no_more(gate: Gate) -> None:
    batcher = Batcher(config(), [gate], queue_limit=9)
    blocked(gate, batcher)
    queued = batcher.submit(row(2.0), 1)
    gate.open.set()
    batcher.close()
    assert float(queued.result(0).outputs["y"][0, 0]) == 4.0
    with pytest.raises(QueueFullError, match="shutting down"):
        batcher.submit(row(1.0), 1)
