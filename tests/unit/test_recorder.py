"""Counting and timing, on made-up times."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.engine.base import OUTCOME, RECORD
from loadtest.histogram import Tally, merge, new_histogram
from loadtest.recorder import KEPT, Recorder, add_up
from loadtest.trial import join
from tests import sample_trials as made
from tests.sample_trials import MS, SECOND, requests


def recorded(*batches: object, end_ns: int = 2 * SECOND, samples: int = 1) -> Recorder:
    recorder = Recorder(0, end_ns, samples_per_query=samples)
    for batch in batches:
        recorder.add(batch)  # type: ignore[arg-type]
    return recorder


def test_only_what_was_due_in_the_window_counts_and_classes_add_up() -> None:
    measured = recorded(
        requests([-1], [6]),
        requests([0], [11 * MS]),
        requests([1 * SECOND], [2 * SECOND], outcome="timeout"),
        requests([1 * SECOND], [0], outcome="not_sent"),
        requests([2 * SECOND], [1 * SECOND]),
    ).finish()
    assert measured.outcomes == made.outcomes(ok=1, timeout=1, not_sent=1)


def test_response_time_counts_from_due_and_service_time_from_sent() -> None:
    measured = recorded(requests([0], [50 * MS], late_ns=40 * MS)).finish()
    found = {
        "response": merge([measured.response_time[0]["ok"]]).get_max_value(),
        "service": merge([measured.service_time[0]["ok"]]).get_max_value(),
        "lateness": merge([measured.lateness]).get_max_value(),
    }
    wanted = {"response": 50 * MS, "service": 10 * MS, "lateness": 40 * MS}
    assert found == pytest.approx(wanted, rel=0.001)


def test_each_second_has_its_own_histogram_and_counts_what_was_answered_in_it() -> None:
    due = (0, SECOND - 1, SECOND, 2 * SECOND)
    measured = recorded(requests(due, [MS] * 4), end_ns=3 * SECOND).finish()
    windows = measured.response_time
    assert [merge([window["ok"]]).total_count for window in windows] == [2, 1, 1]
    assert measured.completed == (1, 2, 1)


def test_a_straggler_joins_the_second_in_which_it_was_due() -> None:
    early = [requests([i * SECOND], [MS]) for i in range(8)]
    late = requests([0], [7 * SECOND])
    windows = recorded(*early, late, end_ns=8 * SECOND).finish().response_time
    assert merge([windows[0]["ok"]]).total_count == 2


def test_time_in_flight_counts_the_part_inside_the_window() -> None:
    measured = recorded(
        requests([-SECOND], [2 * SECOND]), requests([SECOND], [3 * SECOND])
    ).finish()
    assert measured.in_flight_ns == 2 * SECOND


def test_a_query_takes_as_long_as_its_slowest_sample_and_fails_with_any() -> None:
    whole = requests([0, 0], [5 * MS, 9 * MS], query=[1, 1])
    half, rest = requests([MS], [MS], query=[2]), requests([MS], [MS], query=[2], outcome="timeout")
    measured = recorded(whole, half, rest, samples=2).finish()
    assert measured.outcomes == made.outcomes(ok=1, timeout=1)
    slowest = merge([measured.response_time[0]["ok"]]).get_max_value()
    assert slowest == pytest.approx(9 * MS, rel=0.001)


def test_a_tally_is_the_histogram_of_its_values() -> None:
    rng = np.random.default_rng(5)
    values = np.concatenate(
        [(rng.lognormal(0, 3, 3000) * MS).astype(np.int64), [0, 1, 999, 10**15]]
    )
    tally, wanted = Tally(), new_histogram()
    tally.add(values[:1000])
    tally.add(values[1000:])
    for value in values.tolist():
        wanted.record_value(min(max(value, 1000), 600 * SECOND))
    found = tally.histogram()
    assert found.encode() == wanted.encode()


def test_histograms_of_two_generators_add_up_exactly() -> None:
    """Percentiles come from all samples; nothing is averaged."""
    fast = made.output([10 * MS] * 900, users=2)
    slow = made.output([1000 * MS] * 100, users=1)
    both = join([fast, slow], clock_error_s=0.001)
    assert both.outcomes["ok"] == 1000
    assert both.mean_in_flight == 3
    merged = merge(window["ok"] for window in both.response_time)
    assert merged.total_count == 1000
    assert merged.get_value_at_percentile(90) == pytest.approx(10 * MS, rel=0.001)
    assert merged.get_value_at_percentile(95) == pytest.approx(1000 * MS, rel=0.001)
    assert both.clock_error_s == 0.001


def test_every_request_of_the_window_is_kept_where_that_is_asked() -> None:
    recorder = Recorder(SECOND, 3 * SECOND, keep=True)
    assert recorder.kept().dtype.names == KEPT
    recorder.add(requests([0, SECOND], [7, 8 * MS]))
    recorder.add(requests([2 * SECOND], [MS], late_ns=5, outcome="timeout"))
    recorder.add(requests([3 * SECOND], [MS]))
    kept = recorder.kept()
    assert kept.dtype.names == KEPT
    assert kept.dtype.itemsize == sum(RECORD[name].itemsize for name in KEPT)
    assert kept["due"].tolist() == [SECOND, 2 * SECOND]
    assert kept["done"].tolist() == [SECOND + 8 * MS, 2 * SECOND + MS]
    assert kept["sent"].tolist() == [SECOND, 2 * SECOND + 5]
    assert kept["outcome"].tolist() == [OUTCOME["ok"], OUTCOME["timeout"]]


def test_a_dropped_frame_is_counted_and_took_no_time() -> None:
    measured = recorded(
        requests([0], [9 * MS]), requests([0, 1], [3 * MS] * 2, outcome="dropped")
    ).finish()
    assert measured.outcomes == made.outcomes(ok=1, dropped=2)
    assert [set(window) for window in measured.response_time] == [{"ok"}, set()]
    assert measured.in_flight_ns == 9 * MS


def test_a_class_that_only_one_generator_saw_is_kept() -> None:
    ok = recorded(requests([0], [MS])).finish().response_time[0]
    timeout = recorded(requests([0], [MS], outcome="timeout")).finish().response_time[0]
    assert set(add_up([ok, timeout])) == {"ok", "timeout"}
