"""A queue and its instances on an event loop, seen through a model that notes its batches."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence

import numpy as np
import pytest

from serving.batching import (
    Batcher,
    CancelledError,
    ExpiredError,
    Outcome,
    Pending,
    QueueFullError,
)
from serving.batching.instances import BatchResult
from serving.errors import ServerError
from serving.models.config import ModelConfig, TensorSpec
from serving.models.scheduling import DynamicBatching, QueuePolicy
from serving.protocol import Array


class Gate:
    """Doubles its input; waits before each batch until it is opened."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.batches: list[int] = []

    def __call__(self, inputs: Mapping[str, Array]) -> Mapping[str, Array]:
        assert self.open.wait(10)
        self.batches.append(inputs["x"].shape[0])
        if (inputs["x"] < 0).any():
            raise ValueError("negative")
        return {"y": inputs["x"] * 2}


class Asked(Pending):
    """A request whose outcome can be awaited."""

    __slots__ = ("future",)

    def __init__(
        self, value: float = 1.0, *, width: int = 2, rows: int = 1, timeout_ns: int = 0
    ) -> None:
        array = np.full((rows, width), value, np.float32)
        super().__init__({"x": array}, rows, width, timeout_ns)
        self.future: asyncio.Future[Mapping[str, Array]] = (
            asyncio.get_running_loop().create_future()
        )

    def done(self, outcome: Outcome) -> None:
        if isinstance(outcome, Exception):
            self.future.set_exception(outcome)
        else:
            self.future.set_result(outcome)


class Bench:
    """A batcher under test and the gate of its instances."""

    def __init__(
        self,
        batching: DynamicBatching | None = DynamicBatching(0),  # noqa: B008  (frozen)
        *,
        most: int = 4,
        limit: int = 100,
        instances: int = 1,
        run: Callable[[Mapping[str, Array]], Mapping[str, Array]] | None = None,
    ) -> None:
        self.gate = Gate()
        self.results: list[BatchResult] = []
        spec = (TensorSpec("x", "FP32", (-1,)),)
        config = ModelConfig("m", "onnxruntime", most, spec, spec, dynamic_batching=batching)
        self.batcher = Batcher(
            config,
            [run or self.gate] * instances,
            queue_limit=limit,
            on_batch=self.results.append,
        )

    def ask(self, value: float = 1.0, **more: int) -> Asked:
        asked = Asked(value, **more)
        self.batcher.submit(asked)
        return asked

    async def blocked(self) -> Asked:
        """One request inside the model, so that the next ones wait in the queue together."""
        asked = self.ask(0.0)
        while self.batcher.waiting:
            await asyncio.sleep(0)
        return asked

    async def answers(self, asked: Sequence[Asked]) -> list[Mapping[str, Array]]:
        self.gate.open.set()
        return list(await asyncio.wait_for(asyncio.gather(*(one.future for one in asked)), 10))


def on_a_loop(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(test())  # type: ignore[arg-type]


def test_waiting_requests_run_together_and_get_their_own_rows() -> None:
    async def check() -> None:
        bench = Bench()
        await bench.blocked()
        answers = await bench.answers([bench.ask(float(n)) for n in range(6)])
        firsts = [float(answer["y"][0, 0]) for answer in answers]
        assert firsts == [0.0, 2.0, 4.0, 6.0, 8.0, 10.0]
        assert bench.gate.batches == [1, 4, 2]
        await bench.batcher.close()
        assert [result.rows for result in bench.results] == [1, 4, 2]
        assert all(result.compute_ns > 0 for result in bench.results)
        waits_ns = [one.started_ns - one.requests[0].since_ns for one in bench.results]
        assert waits_ns == sorted(waits_ns)

    on_a_loop(check)


def test_unequal_shapes_and_too_many_rows_stay_apart() -> None:
    async def check() -> None:
        bench = Bench()
        await bench.blocked()
        asked = [
            bench.ask(width=width, rows=rows) for width, rows in [(2, 1), (3, 1), (2, 3), (2, 1)]
        ]
        shapes = [answer["y"].shape for answer in await bench.answers(asked)]
        assert shapes == [(1, 2), (1, 3), (3, 2), (1, 2)]
        await bench.batcher.close()

    on_a_loop(check)


def test_requests_that_come_in_one_turn_of_the_loop_leave_together() -> None:
    async def check() -> None:
        bench = Bench()
        await bench.answers([bench.ask() for _ in range(3)])
        assert bench.gate.batches == [3]
        await bench.batcher.close()

    on_a_loop(check)


def test_a_short_delay_ends_by_itself() -> None:
    async def check() -> None:
        bench = Bench(DynamicBatching(200_000))
        asked = bench.ask()
        await bench.answers([asked])
        await bench.batcher.close()
        assert bench.results[0].started_ns - asked.since_ns >= 200_000

    on_a_loop(check)


def test_one_bad_request_fails_alone() -> None:
    async def check() -> None:
        bench = Bench()
        await bench.blocked()
        good, bad, other = (bench.ask(value) for value in (1.0, -1.0, 3.0))
        right, wrong = await bench.answers([good, other])
        assert (float(right["y"][0, 0]), float(wrong["y"][0, 0])) == (2.0, 6.0)
        with pytest.raises(ValueError, match="negative"):
            await bad.future
        await bench.batcher.close()

    on_a_loop(check)


def test_a_full_queue_refuses_at_once() -> None:
    async def check() -> None:
        bench = Bench(limit=2)
        first = await bench.blocked()
        asked = [bench.ask(), bench.ask()]
        with pytest.raises(QueueFullError):
            bench.ask()
        await bench.answers([first, *asked])
        await bench.batcher.close()

    on_a_loop(check)


def test_a_cancelled_request_costs_no_inference() -> None:
    async def check() -> None:
        bench = Bench()
        first = await bench.blocked()
        asked = bench.ask()
        bench.batcher.cancel(asked)
        with pytest.raises(CancelledError):
            await asked.future
        await bench.answers([first])
        await bench.batcher.close()
        assert bench.gate.batches == [1]

    on_a_loop(check)


def test_a_request_that_waits_too_long_is_told_while_the_model_is_busy() -> None:
    async def check() -> None:
        bench = Bench(DynamicBatching(0, queue=QueuePolicy(timeout_ns=2_000_000)))
        first = await bench.blocked()
        with pytest.raises(ExpiredError, match="longer than it may"):
            await asyncio.wait_for(bench.ask().future, 10)
        assert bench.gate.batches == []
        await bench.answers([first])
        await bench.batcher.close()

    on_a_loop(check)


def test_a_shorter_timeout_that_comes_later_is_kept_too() -> None:
    async def check() -> None:
        policy = QueuePolicy(timeout_ns=3_600 * 10**9, may_shorten=True)
        bench = Bench(DynamicBatching(0, queue=policy))
        first = await bench.blocked()
        patient = bench.ask()
        with pytest.raises(ExpiredError):
            await asyncio.wait_for(bench.ask(timeout_ns=2_000_000).future, 10)
        await bench.answers([first, patient])
        await bench.batcher.close()

    on_a_loop(check)


def test_two_shapes_run_side_by_side_on_two_instances() -> None:
    async def check() -> None:
        both = threading.Barrier(2, timeout=10)

        def run(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
            both.wait()
            return {"y": inputs["x"]}

        bench = Bench(instances=2, run=run)
        await bench.answers([bench.ask(width=width) for width in (1, 2)])
        await bench.batcher.close()

    on_a_loop(check)


@pytest.mark.parametrize("ordered", [True, False])
def test_answers_keep_the_order_of_requests_where_that_is_asked_for(ordered: bool) -> None:
    async def check() -> None:
        quick_is_done = threading.Event()

        def run(inputs: Mapping[str, Array]) -> Mapping[str, Array]:
            if inputs["x"].shape[1] == 1:
                assert quick_is_done.wait(10)
            else:
                quick_is_done.set()
            return {"y": inputs["x"]}

        bench = Bench(DynamicBatching(0, preserve_ordering=ordered), instances=2, run=run)
        order: list[str] = []
        slow, quick = bench.ask(width=1), bench.ask(width=2)
        slow.future.add_done_callback(lambda _: order.append("slow"))
        quick.future.add_done_callback(lambda _: order.append("quick"))
        await bench.answers([slow, quick])
        await bench.batcher.close()
        if ordered:
            assert order == ["slow", "quick"]
        else:
            assert sorted(order) == ["quick", "slow"]

    on_a_loop(check)


def test_an_output_without_its_rows_is_an_error_not_an_empty_answer() -> None:
    async def check() -> None:
        bench = Bench(run=lambda _: {"y": np.zeros((1, 3))})
        with pytest.raises(ServerError, match=r"shape \[1, 3\] for a batch of 2"):
            await bench.ask(rows=2).future
        await bench.batcher.close()

    on_a_loop(check)


def test_a_model_without_a_batch_axis_runs_alone() -> None:
    async def check() -> None:
        bench = Bench(None, most=0)
        await bench.blocked()
        await bench.answers([bench.ask() for _ in range(3)])
        await bench.batcher.close()
        assert bench.gate.batches == [1] * 4

    on_a_loop(check)


def test_a_closed_batcher_finishes_its_queue_and_takes_no_more() -> None:
    async def check() -> None:
        bench = Bench(DynamicBatching(3_600 * 10**9))
        queued = bench.ask(2.0)
        closing = asyncio.create_task(bench.batcher.close())
        await asyncio.sleep(0)
        with pytest.raises(QueueFullError, match="unloaded"):
            bench.ask()
        bench.gate.open.set()
        await asyncio.wait_for(closing, 10)
        assert float((await queued.future)["y"][0, 0]) == 4.0

    on_a_loop(check)
