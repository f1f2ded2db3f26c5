"""MLPerf LoadGen drives exchanges that only sleep, so that what it reports can be foretold."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from loadtest.mlperf import LoadgenResult, LoadgenSettings, parse_summary, run_loadgen
from serving.errors import LoadError, MachineError, UsageError

SERVICE_MS = 2.0

# Of LoadGen 6.0.17: "server", 50 rps for 3 s.
SERVER_SUMMARY = """\
================================================
MLPerf Results Summary
================================================
SUT name : PyFastSUT
Scenario : Server
Mode     : PerformanceOnly
Completed samples per second    : 47.12
Result is : INVALID
  Performance constraints satisfied : Yes
  Min duration satisfied : Yes
  Min queries satisfied : Yes
  Early stopping satisfied: NO
Recommendations:
Early Stopping Result:
 * Run unsuccessful.
 * Processed 144 queries.

================================================
Additional Stats
================================================
Scheduled samples per second : 47.16
Min latency (ns)                : 2147988
Max latency (ns)                : 2458744
Mean latency (ns)               : 2283160
50.00 percentile latency (ns)   : 2290563
90.00 percentile latency (ns)   : 2343030
99.90 percentile latency (ns)   : 2458744
"""

# Of the same: "single-stream" and "offline".
SINGLE_STREAM_SUMMARY = """\
90.0th percentile latency (ns) : 2143951
Result is : VALID
  Min duration satisfied : Yes
  Min queries satisfied : Yes
  Early stopping satisfied: Yes
QPS w/ loadgen overhead         : 471.65
97.00 percentile latency (ns)   : 2154427
"""
OFFLINE_SUMMARY = """\
Samples per second: 3804.67
Result is : INVALID
  Min duration satisfied : NO
"""


def test_a_summary_is_read() -> None:
    server = parse_summary(SERVER_SUMMARY)
    assert not server.result_valid
    assert server.checks == {
        "Performance constraints": True,
        "Min duration": True,
        "Min queries": True,
        "Early stopping": False,
    }
    assert server.percentiles_ms == {"p50": 2.290563, "p90": 2.34303, "p99.9": 2.458744}
    assert server.rate_rps == 47.12
    single = parse_summary(SINGLE_STREAM_SUMMARY)
    assert (single.result_valid, single.rate_rps) == (True, None)
    assert single.percentiles_ms == {"p97": 2.154427}
    assert parse_summary(OFFLINE_SUMMARY).rate_rps == 3804.67
    with pytest.raises(LoadError, match="no verdict"):
        parse_summary(SERVER_SUMMARY.partition("Result")[0])


def settings(folder: Path, scenario: str, **changes: Any) -> LoadgenSettings:
    given = {"seconds": 0.5, "rate_rps": 50.0, "latency_bound_ms": 100.0, "seed": 3, "samples": 5}
    return LoadgenSettings(scenario=scenario, log_folder=folder, **(given | changes))


@pytest.mark.parametrize(
    ("scenario", "changes", "told"),
    [
        ("batch", {}, "no 'batch'"),
        ("server", {"rate_rps": None}, "no rate"),
        ("offline", {"rate_rps": 0.0}, "no rate"),
        ("single-stream", {"samples": 0}, "no payloads"),
    ],
)
def test_what_loadgen_cannot_do_is_told(
    tmp_path: Path, scenario: str, changes: dict[str, Any], told: str
) -> None:
    with pytest.raises(UsageError, match=told):
        settings(tmp_path, scenario, **changes)


def test_a_missing_package_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlperf_loadgen", None)
    with pytest.raises(MachineError, match=r"pip install infersweep\[loadgen\]"):
        run_loadgen(settings(tmp_path, "single-stream"), respond, connections=1)


@pytest.fixture
def mlperf_loadgen() -> ModuleType:
    return pytest.importorskip("mlperf_loadgen")


def respond(payload: int) -> bool:
    time.sleep(SERVICE_MS / 1000)
    return True


def assert_summary_and_trace_agree(result: LoadgenResult) -> None:
    """LoadGen's percentile is the sorted value at the index n * p, cut to a whole number."""
    ordered = np.sort(result.latencies_ns)
    assert set(result.percentiles_ms) == {"p50", "p90", "p95", "p97", "p99", "p99.9"}
    for name, value in result.percentiles_ms.items():
        mine = ordered[int(len(ordered) * (float(name[1:]) / 100))] / 1e6
        assert mine == pytest.approx(value, abs=0.2), name


def test_single_stream_sends_one_after_another(
    mlperf_loadgen: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # LoadGen would take its settings from such a file in the working folder.
    (tmp_path / "audit.config").write_text("*.*.min_duration = 100\n")
    monkeypatch.chdir(tmp_path)
    payloads = []

    def exchange(payload: int) -> bool:
        payloads.append(payload)
        return respond(payload)

    result = run_loadgen(
        settings(tmp_path, "single-stream", seconds=2.0, rate_rps=None), exchange, connections=1
    )
    assert result.result_valid, result.summary
    assert all(result.checks.values())
    assert SERVICE_MS <= result.percentiles_ms["p90"] <= 5 * SERVICE_MS
    assert 2.0 / (5 * SERVICE_MS / 1000) < result.completed <= 2.0 / (SERVICE_MS / 1000) + 1
    assert (result.failed, result.first_error) == (0, "")
    assert len(payloads) == len(result.latencies_ns) == result.completed
    assert set(payloads) == set(range(5))
    assert (np.diff(result.scheduled_ns) >= result.latencies_ns[:-1]).all()
    assert_summary_and_trace_agree(result)
    assert "Result is : VALID" in (tmp_path / "mlperf_log_summary.txt").read_text()


def test_server_follows_its_schedule(mlperf_loadgen: ModuleType, tmp_path: Path) -> None:
    before_ns = time.time_ns()
    wanted = settings(tmp_path, "server", seconds=3.0, latency_bound_ms=1000.0)
    result = run_loadgen(wanted, respond, connections=8)
    assert 100 <= result.completed <= 200
    assert result.checks["Performance constraints"]
    assert result.checks["Min duration"]
    # Too few for 99 % at the confidence that LoadGen wants, which is 459 queries.
    assert not result.checks["Early stopping"]
    assert not result.result_valid
    assert_summary_and_trace_agree(result)
    assert before_ns < result.scheduled_ns[0]
    assert result.scheduled_ns[-1] < time.time_ns()
    # Python's clock and LoadGen's agree to a microsecond, and the samples are matched rightly.
    assert (result.issue_delay_ns <= result.send_delay_ns + 1000).all()
    assert (result.send_delay_ns + SERVICE_MS * 1e6 <= result.latencies_ns + 1000).all()
    assert np.median(result.send_delay_ns) < 10e6


def test_a_seed_fixes_the_schedule(mlperf_loadgen: ModuleType, tmp_path: Path) -> None:
    gaps = [
        np.diff(
            run_loadgen(
                settings(tmp_path, "server", seed=seed), lambda _: True, connections=1
            ).scheduled_ns
        ).tolist()
        for seed in (1, 1, 2)
    ]
    assert gaps[0] == gaps[1] != gaps[2]


def test_waiting_for_a_connection_counts(mlperf_loadgen: ModuleType, tmp_path: Path) -> None:
    wanted = settings(tmp_path, "server", rate_rps=1000.0)
    result = run_loadgen(wanted, respond, connections=1)
    assert result.latencies_ns.max() > 300e6
    assert not result.checks["Performance constraints"]


def test_multi_stream_has_one_latency_per_query(mlperf_loadgen: ModuleType, tmp_path: Path) -> None:
    wanted = settings(tmp_path, "multi-stream", samples_per_query=6)
    result = run_loadgen(wanted, respond, connections=3)
    assert result.completed == 6 * len(result.latencies_ns) == len(result.send_delay_ns)
    # Six on three connections: two rounds.
    assert result.latencies_ns.min() >= 2 * SERVICE_MS * 1e6
    assert_summary_and_trace_agree(result)


def test_offline_sends_all_at_once_and_failures_count(
    mlperf_loadgen: ModuleType, tmp_path: Path
) -> None:
    turns = iter(range(10_000))

    def exchange(payload: int) -> bool:
        respond(payload)
        match next(turns) % 5:
            case 0:
                raise ConnectionResetError("peer went away")
            case 1:
                return False
            case _:
                return True

    wanted = settings(tmp_path, "offline", seconds=1.0, rate_rps=100.0)
    result = run_loadgen(wanted, exchange, connections=2)
    assert result.completed == len(result.latencies_ns) == 110
    assert result.failed == 44
    assert result.first_error == "ConnectionResetError: peer went away"
    # Twice as fast as it was told to expect.
    assert not result.checks["Min duration"]
    assert_summary_and_trace_agree(result)


def test_an_interrupted_run_ends_and_another_can_follow(
    mlperf_loadgen: ModuleType, tmp_path: Path
) -> None:
    earlier = signal.signal(signal.SIGINT, signal.default_int_handler)
    sent: list[int] = []

    def interrupt(payload: int) -> bool:
        sent.append(payload)
        if len(sent) == 3:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        return respond(payload)

    try:
        with pytest.raises(KeyboardInterrupt):
            run_loadgen(settings(tmp_path, "offline", rate_rps=1000.0), interrupt, connections=1)
    finally:
        signal.signal(signal.SIGINT, earlier)
    # LoadGen was told of all 550 before its memory went, but most were not sent.
    assert len(sent) < 500
    assert "samples_per_query : 550" in (tmp_path / "mlperf_log_summary.txt").read_text()
    result = run_loadgen(settings(tmp_path, "single-stream"), respond, connections=2)
    assert (result.failed, result.result_valid) == (0, True)
