"""Every rule that makes a window INVALID, and that a clean one stays VALID."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.camera_schedule import Cameras
from loadtest.recorder import Recorder
from loadtest.scenarios import ClosedLoop, Load, OpenLoop
from loadtest.scenarios.base import streams_of
from loadtest.schedule import constant
from loadtest.trial import LevelOutput
from loadtest.validity import Judgement, judge
from tests import sample_trials as made
from tests.sample_trials import MS, SECOND, requests, spread

OPEN = OpenLoop(lambda _rng: constant(50))
PACED = OpenLoop.of(streams_of(Cameras(2, 25)))


def judged(
    output: LevelOutput,
    load: Load | None = None,
    *,
    ended: str | None = None,
    ceiling_rps: float | None = None,
) -> Judgement:
    found = judge(
        output,
        load or ClosedLoop(1),
        client_cpus=1,
        server_ended=ended,
        ceiling_rps=ceiling_rps,
    )
    assert (found.verdict == "VALID") == (not found.reasons)
    return found


def reasons(output: LevelOutput, load: Load | None = None, **given: object) -> str:
    return "; ".join(judged(output, load, **given).reasons)  # type: ignore[arg-type]


def test_a_clean_window_is_valid() -> None:
    assert reasons(made.output([5 * MS] * 100)) == ""
    assert reasons(made.output([5 * MS] * 100), OPEN) == ""


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"client_cpu_s": 1.9}, "client-bound: the generator used 95%"),
        ({"mean_in_flight": 0.9}, "client-bound: 0.90 requests"),
        ({"lost_server_pids": (7,)}, "1 server process(es) died"),
        ({"lost": 3}, "client-bound: 3 results came faster"),
        ({"outcomes": made.outcomes(ok=99, wrong_answer=1)}, "1 wrong answers"),
        ({"outcomes": made.outcomes(ok=99, connection_error=1)}, "1 requests were lost"),
        ({"outcomes": made.outcomes(ok=98, timeout=1, server_fault_5xx=1)}, "1 timeout"),
        ({"outcomes": made.outcomes(ok=3)}, "too few samples"),
        ({"outcomes": made.outcomes(ok=94, not_sent=6)}, "94 of 100 planned requests were sent"),
        ({"completed": (80, 20, 80), "window_s": 3.0}, "not steady: between 20 and 80 answers"),
    ],
)
def test_each_fault_is_told(changes: dict[str, object], told: str) -> None:
    assert told in reasons(made.output([5 * MS] * 100, **changes))


def test_a_dead_server_is_told_with_how_it_ended() -> None:
    told = reasons(made.output([5 * MS] * 100), ended="was killed by SIGKILL")
    assert told == "the server was killed by SIGKILL during the trial"


def test_blocking_clients_are_client_bound_by_littles_law() -> None:
    """Ten users through one blocking call of 200 ms: 4.9/s and one request in flight, not ten."""
    blocked = made.output([200 * MS] * 29, window_s=6.0, users=1)
    assert "1.00 requests were in flight on average, not 10" in reasons(blocked, ClosedLoop(10))


def test_a_rate_near_the_generators_ceiling_is_client_bound() -> None:
    output = made.output([1 * MS] * 1400)
    assert reasons(output, ceiling_rps=1001) == ""
    assert "above 70% of the generator's ceiling of 999/s" in reasons(output, ceiling_rps=999)


@pytest.mark.parametrize(
    ("late_ns", "service_ns", "late"),
    [
        (int(0.9 * MS), MS, 0),
        (2 * MS, MS, 20),
        # More than 1 ms, but less than 5% of what the server takes.
        (2 * MS, 60 * MS, 0),
        (4 * MS, 60 * MS, 20),
    ],
)
def test_late_is_more_than_a_millisecond_and_more_than_five_percent(
    late_ns: int, service_ns: int, late: int
) -> None:
    recorder = Recorder(0, 2 * SECOND)
    due = spread(1000)
    recorder.add(requests(due[20:], [service_ns] * 980))
    recorder.add(requests(due[:20], [service_ns + late_ns] * 20, late_ns=late_ns))
    measured = vars(recorder.finish())
    del measured["in_flight_ns"]
    found = judged(made.output([MS] * 9, **measured), OPEN)
    assert found.late == late
    told = "client-bound: 2.0% of the requests left late" if late else ""
    assert "; ".join(found.reasons) == told


def test_an_unsettled_warm_up_is_a_note_and_no_fault() -> None:
    found = judged(made.output([5 * MS] * 100, settled=False, warmup_s=10.0))
    assert found.verdict == "VALID"
    assert "warm-up had not settled after 10 s" in found.notes


def test_a_ramp_is_not_asked_to_be_steady() -> None:
    load = OpenLoop(lambda _rng: constant(1), stationary=False)
    rising = made.output([5 * MS] * 100, completed=tuple(np.arange(10, 200, 20)), window_s=10.0)
    assert reasons(rising, load) == ""
    assert "throughput drifts" in reasons(rising, OPEN)


def test_what_waits_for_its_stream_is_no_fault_of_the_generator() -> None:
    recorder = Recorder(0, 2 * SECOND)
    recorder.add(requests(spread(1000), [50 * MS] * 1000, late_ns=40 * MS))
    measured = vars(recorder.finish())
    del measured["in_flight_ns"]
    late = made.output([MS] * 9, **measured)
    assert "left late" in reasons(late, OPEN)
    assert reasons(late, PACED) == ""
    behind = made.output([MS] * 9, outcomes=made.outcomes(ok=94, not_sent=6))
    told = reasons(behind, PACED)
    assert "the streams fell behind: 94 of 100 planned requests were sent" in told
    assert "client-bound" not in told


def test_frames_that_a_camera_gave_up_are_no_failures() -> None:
    """As many as are answered; of those that were not given up all were sent."""
    dropping = made.output([MS] * 9, outcomes=made.outcomes(ok=50, dropped=50))
    assert reasons(dropping, PACED) == ""
    assert "50 frames were dropped by their cameras' policy" in judged(dropping, PACED).notes
    behind = made.output([MS] * 9, outcomes=made.outcomes(ok=47, not_sent=3, dropped=50))
    assert "the streams fell behind: 47 of 100" in reasons(behind, PACED)
