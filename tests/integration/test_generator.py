"""What the generator reports of servers whose behaviour is known, faults included."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest

from loadtest.analysis import percentiles_ms, samples_of
from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.results import Quantile, Settings, Trial
from loadtest.runner import Fleet, generate
from loadtest.trial import LevelOutput, TrialSpec
from loadtest.trials import PlannedTrial, trial_of
from serving.errors import LoadError
from serving.models.repository import Model
from serving.parity import reference_for
from serving.process import RunningProcess, free_port, wait_until
from serving.protocol import InferRequest, encode_response
from serving.readiness import get_status
from tests.sample_trials import settings


@dataclass(frozen=True)
class Bench:
    """One prepared request whose right answer the truth server gives."""

    folder: Path

    def spec(self, url: str, scenario: str, level: float, **given: object) -> TrialSpec:
        values = {
            "url": url,
            "model": "tiny",
            "payloads": self.folder / "payloads",
            "scenario": scenario,
            "levels": (level,),
            "duration_s": 3.0,
            "timeout_s": 5.0,
            "seed": 1,
            "values_every": 20,
            "server_pid": None,
            "output": self.folder / "output.jsonl",
        }
        return TrialSpec.model_validate({**values, **given})

    def run(self, url: str, scenario: str, level: float, **given: object) -> LevelOutput:
        spec = self.spec(url, scenario, level, **given)
        (output,) = generate(spec, Fleet(cpus=(1,)), self.folder / "generator.log")
        return output

    @contextmanager
    def truth(self, *arguments: str) -> Iterator[tuple[str, int]]:
        """Address and process id of a server of known service times."""
        port = free_port()
        argv = [
            *(sys.executable, "-m", "benchmarks.truth_server", *arguments, "--port", str(port)),
            *("--reply", str(self.folder / "reply"), "--log", str(self.folder / "log.npy")),
            *("--reply-header-length", (self.folder / "length").read_text()),
        ]
        url = f"http://127.0.0.1:{port}"
        root = Path(__file__).parents[2]
        log = self.folder / "truth.log"
        with RunningProcess(argv, cpus=(0,), log=log, cwd=root) as process:
            wait_until(
                lambda: get_status(url, "/v2/health/ready") == 200,
                deadline_s=30,
                process=process,
                what="the truth server",
            )
            yield url, process.pid


@pytest.fixture
def bench(tiny: Model, tmp_path: Path) -> Bench:
    payload = payloads_from(tiny, reference_for(tiny))[0]
    write_payloads(tmp_path / "payloads", [payload])
    wanted = InferRequest((), binary_default=True)
    body, length = encode_response("tiny", 1, wanted, [*payload.expected.values()])
    (tmp_path / "reply").write_bytes(body)
    (tmp_path / "length").write_text(str(length))
    return Bench(tmp_path)


def judged(output: LevelOutput, scenario: str, **changes: object) -> Trial:
    asked: Settings = settings(scenario=scenario, levels=(output.level,), **changes)
    planned = PlannedTrial("remote", output.level, 1)
    trial, _ = trial_of(
        planned, output, asked, client_cpus=1, server_cpus=1, server_ended=None, ceiling_rps=None
    )
    return trial


def p(found: Quantile | None) -> float:
    assert found is not None
    return found.value_ms


def stop_for(pid: int, started: Path, after_s: float, seconds: float) -> Thread:
    """SIGSTOP a server ``after_s`` after the generator was started, and let it go on again."""

    def stop() -> None:
        while not started.exists():
            time.sleep(0.02)
        time.sleep(after_s)
        os.kill(pid, signal.SIGSTOP)
        time.sleep(seconds)
        os.kill(pid, signal.SIGCONT)

    thread = Thread(target=stop)
    thread.start()
    return thread


SERIAL = ("--distribution", "constant", "--mean-ms", "5", "--serial")


def test_a_stall_shows_at_its_full_length_in_an_open_loop_and_hides_in_a_closed_one(
    bench: Bench,
) -> None:
    """50 requests/s for 10 s to a server of 5 ms that stops for 2 s. Of the 100 that fall due
    meanwhile the first waits 2 s; every next one is due 20 ms later and served 5 ms later.
    """
    found = {}
    for scenario, level in (("constant", 50), ("closed", 1)):
        with bench.truth(*SERIAL) as (url, pid):
            started = bench.folder / "output.spec.json"
            thread = stop_for(pid, started, 6.0, 2.0)
            output = bench.run(url, scenario, level, duration_s=10.0)
            thread.join()
        found[scenario] = output
    due = percentiles_ms(samples_of(found["constant"].response_time))
    assert found["constant"].outcomes["ok"] == found["constant"].planned == 500
    assert p(due.p50) == pytest.approx(5, abs=1.5)
    assert p(due.p90) == pytest.approx(1260, rel=0.08)
    assert p(due.p95) == pytest.approx(1630, rel=0.08)
    assert p(due.p99) == pytest.approx(1930, rel=0.08)
    hidden = percentiles_ms(samples_of(found["closed"].response_time))
    assert p(hidden.p99) < 50
    assert "not steady" in judged(found["constant"], "constant", duration_s=10.0).reasons[0]


def test_percentiles_are_not_rounded_and_stay_between_least_and_largest(bench: Bench) -> None:
    """A server of 123 ms: two-digit rounding would call every percentile 130 or 120."""
    with bench.truth("--distribution", "constant", "--mean-ms", "123") as (url, _):
        output = bench.run(url, "closed", 16)
    found = percentiles_ms(samples_of(output.response_time))
    samples = samples_of(output.response_time)
    for value in (p(found.p50), p(found.p90), p(found.p95)):
        assert value == pytest.approx(123, abs=6)
        assert samples.at_rank(1) / 1e6 <= value <= samples.largest / 1e6


def test_timeouts_are_counted_and_the_tail_is_at_least_the_limit(bench: Bench) -> None:
    """One in ten takes 1.5 s and is given up after 0.5 s."""
    service = ("--mean-ms", "152", "--slow-ms", "1500", "--slow-share", "0.1")
    with bench.truth("--distribution", "bimodal", *service) as (url, _):
        output = bench.run(url, "server", 200, timeout_s=0.5, duration_s=4.0)
    share = output.outcomes["timeout"] / output.planned
    assert share == pytest.approx(0.1, abs=0.04)
    assert sum(output.outcomes.values()) == output.planned
    tail = percentiles_ms(samples_of(output.response_time)).p99
    assert tail is not None
    assert tail.at_least
    assert tail.high_ms is None
    assert tail.value_ms >= 500
    assert any("timeout" in reason for reason in judged(output, "server").reasons)


def test_a_rate_beyond_the_connections_is_not_sent_and_told(bench: Bench) -> None:
    with bench.truth("--distribution", "constant", "--mean-ms", "400") as (url, _):
        output = bench.run(url, "constant", 100, connections=10)
    assert output.planned == 300
    assert output.outcomes["not_sent"] > 200
    trial = judged(output, "constant", duration_s=3.0)
    assert trial.verdict == "INVALID"
    assert any("planned requests were sent" in reason for reason in trial.reasons)


@pytest.mark.parametrize(
    ("scenario", "level", "given"),
    [
        ("single-stream", 1, {}),
        ("multi-stream", 8, {}),
        ("server", 100, {}),
        ("offline", 16, {"requests": "500"}),
        ("constant", 100, {}),
        ("ramp", 150, {}),
        ("spike", 50, {"at_s": "1", "length_s": "0.5"}),
        ("bursty", 100, {"burstiness": "4"}),
        ("soak", 100, {}),
        ("replay", 1, {}),
    ],
)
def test_every_scenario_runs_and_accounts_for_every_request(
    bench: Bench, scenario: str, level: float, given: dict[str, str]
) -> None:
    if scenario == "replay":
        trace = bench.folder / "trace.jsonl"
        trace.write_text("".join(f'{{"timestamp": {i / 100}}}\n' for i in range(200)))
        given = {"trace": str(trace)}
    with bench.truth("--distribution", "lognormal", "--mean-ms", "8") as (url, _):
        output = bench.run(url, scenario, level, parameters=given, duration_s=2.0)
    assert output.outcomes["ok"] == output.planned > 50
    samples = samples_of(output.response_time)
    assert samples.count == output.planned
    assert samples_of(output.service_time).largest <= samples.largest
    if scenario in ("offline", "replay"):
        assert output.planned == {"offline": 500, "replay": 200}[scenario]
    if scenario == "multi-stream":
        # The slowest of eight, not the typical one.
        assert samples.at_rank(output.planned // 2) / 1e6 > 11


def test_a_longer_window_makes_p99_known_more_closely(bench: Bench) -> None:
    with bench.truth("--distribution", "lognormal", "--mean-ms", "4", "--sigma", "0.3") as (url, _):
        spec = {"duration_s": 1.0, "until_confident": 0.05, "limit_s": 20.0}
        output = bench.run(url, "closed", 8, **spec)
    assert 1.0 < output.window_s < 20.0
    found = percentiles_ms(samples_of(output.response_time)).p99
    assert found is not None
    assert found.high_ms is not None
    assert (found.high_ms - found.low_ms) / 2 / found.value_ms < 0.1


def test_a_server_that_dies_is_counted_and_never_raised(bench: Bench) -> None:
    with bench.truth("--distribution", "constant", "--mean-ms", "5") as (url, pid):
        started = bench.folder / "output.spec.json"

        def kill() -> None:
            while not started.exists():
                time.sleep(0.02)
            time.sleep(4.5)
            os.kill(pid, signal.SIGKILL)

        thread = Thread(target=kill)
        thread.start()
        output = bench.run(url, "server", 100, duration_s=6.0)
        thread.join()
    assert output.outcomes["ok"] > 20
    assert output.outcomes["connection_error"] > 20
    assert sum(output.outcomes.values()) == output.planned


def test_levels_are_steps_of_one_process(bench: Bench) -> None:
    with bench.truth("--distribution", "constant", "--mean-ms", "5") as (url, _):
        spec = bench.spec(url, "closed", 1, levels=(2, 8, 1), duration_s=1.0)
        outputs = list(generate(spec, Fleet(cpus=(1,)), bench.folder / "generator.log"))
    assert [output.level for output in outputs] == [2, 8, 1]
    for output in outputs:
        assert output.mean_in_flight == pytest.approx(output.level, rel=0.06)


def test_levels_of_an_open_loop_follow_one_another_without_a_pause(bench: Bench) -> None:
    with bench.truth("--distribution", "constant", "--mean-ms", "5") as (url, _):
        spec = bench.spec(url, "server", 1, levels=(50, 200, 100), duration_s=1.0)
        begun = time.monotonic()
        outputs = list(generate(spec, Fleet(cpus=(1,)), bench.folder / "generator.log"))
        elapsed_s = time.monotonic() - begun
    for output in outputs:
        assert output.outcomes["ok"] == output.planned
        assert output.planned == pytest.approx(output.level, rel=0.5)
    # Start, warm-up and window of each; a schedule that was not dropped at its end adds 6 s each.
    assert elapsed_s < 3 * 6


def test_two_processes_send_one_schedule_and_their_histograms_are_added(bench: Bench) -> None:
    log = bench.folder / "generator.log"
    with bench.truth("--distribution", "constant", "--mean-ms", "5") as (url, _):
        fleet = Fleet(cpus=(1,), processes=2)
        (open_loop,) = generate(bench.spec(url, "constant", 100), fleet, log)
        (closed,) = generate(bench.spec(url, "closed", 5), fleet, log)
        (offline,) = generate(
            bench.spec(url, "offline", 4, parameters={"requests": "501"}), fleet, log
        )
    assert open_loop.planned == pytest.approx(300, abs=1)
    assert open_loop.outcomes["ok"] == open_loop.planned
    assert samples_of(open_loop.response_time).count == open_loop.planned
    assert closed.mean_in_flight == pytest.approx(5, rel=0.06)
    assert offline.outcomes["ok"] == 501
    assert 0 < open_loop.clock_error_s < 0.1


def test_a_lost_worker_ends_the_level_with_one_line(bench: Bench) -> None:
    log = bench.folder / "generator.log"

    def kill_a_worker() -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            found = workers(os.getpid())
            if len(found) == 2:
                break
            time.sleep(0.1)
        time.sleep(6.0)
        os.kill(workers(os.getpid())[0], signal.SIGKILL)

    with bench.truth("--distribution", "constant", "--mean-ms", "5") as (url, _):
        thread = Thread(target=kill_a_worker)
        thread.start()
        spec = bench.spec(url, "constant", 100, duration_s=30.0)
        with pytest.raises(LoadError, match="1 of 2 load workers were lost"):
            list(generate(spec, Fleet(cpus=(1,), processes=2), log))
        thread.join()


def workers(parent: int) -> Sequence[int]:
    import psutil

    children = psutil.Process(parent).children()
    return [child.pid for child in children if "--worker" in child.cmdline()]


def test_locust_by_hand_needs_nothing_but_an_address(tiny: Model, tmp_path: Path) -> None:
    from serving.deployment import Placement, running

    root = Path(__file__).parents[2]
    with running(
        "onnxruntime", tiny, Placement((0,), 2), repository=tmp_path / "r", logs=tmp_path
    ) as server:
        done = subprocess.run(
            [
                *(sys.executable, "-m", "locust", "-f", "loadtest/locustfile.py", "--headless"),
                *("-H", server.url, "--model", "tiny", "--model-root", str(tiny.root)),
                *("-u", "4", "-t", "3s", "--csv", str(tmp_path / "by_hand")),
            ],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
            cwd=root,
        )
    assert done.returncode == 0, done.stderr
    rows = (tmp_path / "by_hand_stats.csv").read_text().splitlines()
    name, count, failures = rows[1].split(",")[1:4]
    assert name == "/v2/models/tiny/infer"
    assert int(count) > 500
    assert int(failures) == 0
