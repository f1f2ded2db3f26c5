"""A finished run, loaded into a real Prometheus by the real promtool."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from loadtest.analysis import point_of
from loadtest.folder import ResultsFolder
from loadtest.observing.ask import Prometheus
from loadtest.observing.blocks import load_runs
from loadtest.observing.prometheus import RETENTION
from serving.errors import UsageError
from serving.process import RunningProcess, free_port, wait_until
from tests import sample_trials as made
from tests.sample_runs import START_S, measure, new_run

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None or shutil.which("prometheus") is None,
    reason="needs Prometheus (Debian: apt install prometheus)",
)

RUN = 'a "quoted"\nrun\\'
BACKEND = 'remote:"http://x"'
LENGTH_S = 4.0
BUCKET = 10 ** (1 / 25) * 1.002
"""How far a value read from buckets may be off: 25 in a decade, and HDR's own 0.1% at both ends."""


@contextmanager
def prometheus(data: Path, folder: Path) -> Iterator[Prometheus]:
    rules = folder / "rules.yml"
    rules.write_text(
        "groups: [{name: own, interval: 100ms, rules: [{record: watched, expr: vector(1)}]}]"
    )
    config = folder / "prometheus.yml"
    config.write_text(f"rule_files: ['{rules}']\n")
    asked = Prometheus(f"http://127.0.0.1:{(port := free_port())}")
    argv = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={data}",
        f"--storage.tsdb.retention.time={RETENTION}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with RunningProcess(argv, log=folder / "prometheus.log") as process:
        wait_until(asked.ready, deadline_s=30, process=process, what="Prometheus", poll_s=0.05)
        yield asked


def measure_window(folder: ResultsFolder, repeat: int, start_unix_s: float) -> None:
    """4 s: 2,000 right answers around 8 ms, 20 faults, 3 that were not sent."""
    rng = np.random.default_rng(repeat)
    ended = []
    for outcome, count in (("ok", 2000), ("server_fault_5xx", 20), ("not_sent", 3)):
        durations = rng.lognormal(np.log(8 * made.MS), 0.5, count).astype(int).tolist()
        due = made.spread(count, int(LENGTH_S * made.SECOND))
        ended += [(at, took, outcome) for at, took in zip(due, durations, strict=True)]
    measure(
        folder,
        BACKEND,
        ended,
        after_s=start_unix_s - START_S,
        length_s=LENGTH_S,
        id=f"window-{repeat}",
        verdict="INVALID" if repeat == 2 else "VALID",
    )


def test_an_old_run_opens_in_prometheus_as_its_report_tells_it(tmp_path: Path) -> None:
    data, start_s = tmp_path / "data", START_S + 0.123
    folder = new_run(tmp_path / RUN, slo_ms=20.0)
    measure_window(folder, 1, start_s)
    load_runs([folder.path], data)
    # The run has gone on, then it is loaded again: nothing of it may count twice.
    measure_window(folder, 2, start_s + 10)
    loaded = load_runs([folder.path], data)
    assert loaded.names == (RUN,)
    assert loaded.start_unix_s == pytest.approx(start_s, abs=1e-3)
    assert loaded.end_unix_s == pytest.approx(start_s + 10 + LENGTH_S, abs=1e-3)
    assert len(list(data.glob("0*"))) == 2, "a block for each load"
    assert not list(data.glob(".*")), "the text is gone"

    trials = folder.read_trials()
    with prometheus(data, tmp_path) as asked:
        end_s = loaded.end_unix_s
        ended = asked.at("infersweep_client_requests_total", end_s)
        assert {series.labels["outcome"]: series.last for series in ended} == {
            name: sum(trial.outcomes[name] for trial in trials) for name in made.outcomes()
        }
        for series in ended:
            assert series.labels["run"] == RUN
            assert series.labels["backend"] == BACKEND
        (samples,) = asked.at("count_over_time(infersweep_client_due_total[1h])", end_s)
        assert samples.last == 2 * (1 + LENGTH_S), "a start and four seconds of each window"
        (seen,) = asked.at(
            f"delta(infersweep_client_due_total[{LENGTH_S:.0f}s])", start_s + LENGTH_S
        )
        assert seen.last == trials[0].planned, "the first second's increase is seen too"
        verdicts = asked.at("infersweep_client_trials_total", end_s)
        assert {s.labels["verdict"]: s.last for s in verdicts} == {"VALID": 1, "INVALID": 1}

        for quantile, repeat in ((0.99, 1), (0.5, 1), (0.99, 2)):
            (read,) = asked.at(
                f"histogram_quantile({quantile}, sum by (le) (rate("
                'infersweep_client_response_seconds_bucket{outcome="ok"}[5s])))',
                start_s + 10 * (repeat - 1) + LENGTH_S,
            )
            times = point_of([trials[repeat - 1]], folder.read_histograms).response_time_ms
            told = times.p99 if quantile == 0.99 else times.p50
            assert told is not None
            # Of the report, p99 also counts what was not sent: 3 of 2,003 at the far end.
            assert read.last * 1e3 == pytest.approx(told.value_ms, rel=BUCKET - 1)
        (within,) = asked.at("infersweep_client_within_slo_total", end_s)
        (bucket,) = asked.at(
            'infersweep_client_response_seconds_bucket{outcome="ok",le="0.02"}', end_s
        )
        assert 0 < within.last == bucket.last < 4000

    other = folder.read_manifest().model_copy(update={"created": "2027-01-01T00:00:00+00:00"})
    folder.write_manifest(other)
    with pytest.raises(UsageError, match="two runs are called"):
        load_runs([folder.path], data)


def test_what_was_watched_before_a_loaded_run_ended_is_kept(tmp_path: Path) -> None:
    data = tmp_path / "data"
    with prometheus(data, tmp_path) as asked:
        wait_until(
            lambda: bool(asked.at("watched", time.time())),
            deadline_s=30,
            process=None,
            what="a sample",
        )
        seen_s = time.time()
    folder = new_run(tmp_path / "run")
    measure_window(folder, 1, seen_s - LENGTH_S + 0.5)
    loaded = load_runs([folder.path], data)
    with prometheus(data, tmp_path) as asked:
        assert asked.at("watched", seen_s)
        assert asked.at("infersweep_client_due_total", loaded.end_unix_s)
