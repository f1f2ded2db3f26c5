"""Which requests leave the queue together, and when; time is a number here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.batching import Pending, QueueFullError, RequestQueue
from serving.models.scheduling import DynamicBatching, QueuePolicy

LONG_NS = 3_600 * 10**9


def request(rows: int = 1, shapes: str = "a", timeout_ns: int = 0) -> Pending:
    return Pending({"x": np.zeros((rows, 1))}, rows, shapes, timeout_ns)


def queue(
    most: int = 4,
    *,
    delay_ns: int = 0,
    preferred: tuple[int, ...] = (),
    policy: QueuePolicy | None = None,
    limit: int = 100,
) -> RequestQueue:
    batching = DynamicBatching(delay_ns, preferred, queue=policy or QueuePolicy())
    return RequestQueue(most, batching, limit)


def filled(waiting: RequestQueue, *requests: Pending, at_ns: int = 0) -> list[Pending]:
    for one in requests:
        waiting.push(one, at_ns)
    return list(requests)


def test_a_batch_is_as_large_as_it_may_be_and_in_order() -> None:
    waiting = queue(4)
    given_ = filled(waiting, *(request() for _ in range(6)))
    assert waiting.take(0) == given_[:4]
    assert waiting.take(0) == given_[4:]
    assert waiting.take(0) == []


def test_rows_of_one_request_are_never_split() -> None:
    waiting = queue(4)
    first, second, third = filled(waiting, request(3), request(2), request(2))
    assert waiting.take(0) == [first]
    assert waiting.take(0) == [second, third]


def test_other_shapes_wait_for_their_own_batch() -> None:
    waiting = queue(4)
    a, b, c = filled(waiting, request(shapes="a"), request(shapes="b"), request(shapes="a"))
    assert waiting.take(0) == [a, c]
    assert waiting.take(0) == [b]


def test_without_a_batcher_each_leaves_alone() -> None:
    waiting = RequestQueue(4, None, 9)
    a, b = filled(waiting, request(), request())
    assert waiting.take(0) == [a]
    assert waiting.take(0) == [b]


def test_the_delay_counts_from_the_oldest() -> None:
    waiting = queue(4, delay_ns=100)
    first = filled(waiting, request(), at_ns=1_000)
    second = filled(waiting, request(), at_ns=1_050)
    assert waiting.take(1_099) == []
    assert waiting.due_ns() == 1_100
    assert waiting.take(1_100) == first + second
    assert waiting.due_ns() is None


def test_a_full_batch_does_not_wait() -> None:
    waiting = queue(2, delay_ns=LONG_NS)
    given_ = filled(waiting, request(), request(), request())
    assert waiting.take(0) == given_[:2]
    assert waiting.take(0) == []


def test_a_full_batch_overtakes_another_shape_that_still_waits() -> None:
    waiting = queue(2, delay_ns=LONG_NS)
    filled(waiting, request(shapes="lonely"))
    pair = filled(waiting, request(shapes="b"), request(shapes="b"))
    assert waiting.take(0) == pair
    assert waiting.take(0) == []


def test_the_largest_preferred_size_leaves_at_once() -> None:
    waiting = queue(8, delay_ns=LONG_NS, preferred=(2, 4))
    given_ = filled(waiting, *(request() for _ in range(5)))
    assert waiting.take(0) == given_[:4]
    assert waiting.take(0) == []


def test_a_full_queue_refuses_and_the_models_own_limit_counts() -> None:
    waiting = queue(limit=100, policy=QueuePolicy(max_size=2))
    filled(waiting, request(), request())
    with pytest.raises(QueueFullError, match="2 requests are waiting"):
        waiting.push(request(), 0)
    waiting.take(0)
    waiting.push(request(), 0)


def test_a_request_past_its_timeout_is_refused() -> None:
    waiting = queue(policy=QueuePolicy(timeout_ns=100))
    (old,) = filled(waiting, request(), at_ns=0)
    (young,) = filled(waiting, request(), at_ns=60)
    assert waiting.next_deadline_ns() == 100
    assert waiting.expire(99) == []
    assert waiting.expire(100) == [old]
    assert len(waiting) == 1
    assert waiting.next_deadline_ns() == 160
    assert waiting.take(100) == [young]


def test_with_delay_a_request_past_its_timeout_goes_behind_all_others() -> None:
    waiting = queue(1, policy=QueuePolicy(timeout_ns=100, reject=False))
    (old,) = filled(waiting, request(), at_ns=0)
    (young,) = filled(waiting, request(), at_ns=60)
    assert waiting.expire(100) == []
    assert len(waiting) == 2
    assert waiting.take(100) == [young]
    assert waiting.take(100) == [old]
    assert len(waiting) == 0


@pytest.mark.parametrize(
    ("may_shorten", "own_ns", "deadline_ns"),
    [(True, 30, 30), (True, 500, 100), (True, 0, 100), (False, 30, 100)],
)
def test_a_request_may_bring_a_shorter_timeout_where_the_policy_lets_it(
    may_shorten: bool, own_ns: int, deadline_ns: int
) -> None:
    waiting = queue(policy=QueuePolicy(timeout_ns=100, may_shorten=may_shorten))
    filled(waiting, request(timeout_ns=own_ns))
    assert waiting.next_deadline_ns() == deadline_ns


def test_without_a_batcher_a_request_has_its_own_timeout() -> None:
    waiting = RequestQueue(0, None, 9)
    (one,) = filled(waiting, request(timeout_ns=50))
    assert waiting.expire(50) == [one]


def test_a_cancelled_request_leaves_no_trace() -> None:
    waiting = queue(2, delay_ns=LONG_NS)
    first, second, third = filled(waiting, request(), request(), request())
    assert waiting.cancel(second)
    assert not waiting.cancel(second)
    assert waiting.take(0) == [first, third]
    assert not waiting.cancel(first)
    assert waiting.due_ns() is None


Step = st.one_of(
    st.tuples(st.just("push"), st.integers(1, 4), st.sampled_from("abc")),
    st.tuples(st.just("take"), st.just(0), st.just("")),
    st.tuples(st.just("cancel"), st.integers(0, 50), st.just("")),
    st.tuples(st.just("pass"), st.integers(1, 400), st.just("")),
)


@given(
    st.lists(Step, max_size=60),
    st.sampled_from([0, 100]),
    st.booleans(),
    st.sampled_from([(), (2,), (2, 3)]),
)
def test_every_request_ends_once_and_no_batch_is_too_large(
    steps: list[tuple[str, int, str]], delay_ns: int, reject: bool, preferred: tuple[int, ...]
) -> None:
    policy = QueuePolicy(timeout_ns=250, reject=reject)
    waiting = queue(4, delay_ns=delay_ns, preferred=preferred, policy=policy, limit=20)
    now_ns, pushed, ended = 0, [], []
    for what, number, shapes in steps:
        if what == "push" and len(waiting) < 20:
            pushed += filled(waiting, request(number, shapes), at_ns=now_ns)
        elif what == "take":
            batch = waiting.take(now_ns)
            assert sum(one.rows for one in batch) <= 4
            assert len({one.shapes for one in batch}) <= 1
            assert [one.since_ns for one in batch] == sorted(one.since_ns for one in batch)
            ended += batch
        elif what == "cancel" and number < len(pushed) and waiting.cancel(pushed[number]):
            ended.append(pushed[number])
        elif what == "pass":
            now_ns += number
            ended += waiting.expire(now_ns)
        assert len(waiting) == len(pushed) - len(ended)
    while batch := waiting.take(1 << 62):
        ended += batch
    assert len(waiting) == 0
    assert sorted(map(id, ended)) == sorted(map(id, pushed))
