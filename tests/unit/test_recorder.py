"""Counting and timing, on made-up times."""

from __future__ import annotations

import pytest

from loadtest.recorder import Recorder, merge
from tests.sample_trials import MS, SECOND


def test_only_what_was_due_in_the_window_counts_and_classes_add_up() -> None:
    recorder = Recorder()
    recorder.record(-1, -1, 5, "ok")
    recorder.record(0, 1 * MS, 11 * MS, "ok")
    recorder.record(1 * SECOND, 1 * SECOND, 3 * SECOND, "timeout")
    recorder.record(2 * SECOND, 2 * SECOND, 3 * SECOND, "ok")
    measured = recorder.measure(0, 2 * SECOND)
    assert measured.sent == sum(measured.outcomes.values()) == 2
    assert (measured.outcomes["ok"], measured.outcomes["timeout"]) == (1, 1)


def test_response_time_counts_from_due_and_service_time_from_sent() -> None:
    recorder = Recorder()
    recorder.record(0, 40 * MS, 50 * MS, "ok")
    measured = recorder.measure(0, SECOND)
    response = merge([measured.response_time[0]["ok"]]).get_max_value()
    service = merge([measured.service_time[0]["ok"]]).get_max_value()
    assert response == pytest.approx(50 * MS, rel=0.001)
    assert service == pytest.approx(10 * MS, rel=0.001)


def test_each_second_has_its_own_histogram() -> None:
    recorder = Recorder()
    for due in (0, SECOND - 1, SECOND, 2 * SECOND):
        recorder.record(due, due, due + MS, "ok")
    windows = recorder.measure(0, 3 * SECOND).response_time
    assert [merge([window["ok"]]).total_count for window in windows] == [2, 1, 1]


def test_mean_in_flight_counts_the_part_inside_the_window() -> None:
    recorder = Recorder()
    recorder.record(-SECOND, -SECOND, SECOND, "ok")
    recorder.record(SECOND, SECOND, 4 * SECOND, "ok")
    assert recorder.measure(0, 2 * SECOND).mean_in_flight == pytest.approx(1.0)
