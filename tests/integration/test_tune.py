"""A search over settings that is killed in the middle, and a setting that is served as it says."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from loadtest.folder import ResultsFolder
from loadtest.tune.record import NAME, TuneRecord
from serving.models.repository import Model
from serving.parity import check_parity, reference_for
from serving.process import RunningProcess, free_port
from serving.readiness import wait_ready
from tests.sample_models import write_tiny
from tests.sample_tuning import concluded

BUDGET = 2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny(tmp_path_factory.mktemp("repository"))


def tune(model: Model, out: Path) -> list[str]:
    """No server answers in 20 microseconds, so that each search is over after one probe."""
    words = ["tune", "--model", model.name, "--repository", str(model.root), "--out", str(out)]
    words += ["--objective", "p90<=20us", "--knobs", "max_batch_size", "--budget", str(BUDGET)]
    words += ["--duration", "1", "--limit", "4", "--repeats", "1"]
    return [sys.executable, "-c", "from loadtest.cli import main; main()", *words]


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_search_that_is_killed_goes_on_where_it_was(model: Model, tmp_path: Path) -> None:
    """Killed while it probes the default, of which nothing is measured again."""
    folder = ResultsFolder(tmp_path / "out")
    command, quiet = tune(model, folder.path), subprocess.DEVNULL
    killed = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    wait_until(lambda: folder.trials.is_file() and folder.trials.read_bytes().count(b"\n") >= 2)
    os.kill(killed.pid, signal.SIGKILL)
    killed.wait()
    before = folder.trials.read_bytes()
    before = before[: before.rfind(b"\n") + 1]

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    record = folder.read_derived(NAME, TuneRecord)
    (found,) = record.backends
    assert folder.trials.read_bytes().startswith(before)
    assert before.count(b"\n") >= 2
    identities = [trial.id for trial in folder.read_trials()]
    assert len(set(identities)) == len(identities)
    assert [(one.number, one.text) for one in found.tried] == [
        (0, "default"),
        (1, "max_batch_size=1"),
    ]
    assert {one.outcome.verdict for one in found.tried if one.outcome} == {"not reachable"}
    assert (record.complete, found.best, found.deploy) == (True, None, None)
    assert found.sentence in " ".join(done.stdout.split())
    assert (folder.path / "tune.html").is_file()


def test_what_is_to_be_deployed_answers_rightly_when_it_is_served_so(
    model: Model, tmp_path: Path
) -> None:
    """Of made-up trials in which the tuned setting won; the printed command, at other ports."""
    record = concluded(model, tmp_path, (100.0, 100.0, 101.0, 99.0), (130.0, 120.0, 121.0, 119.0))
    deploy = record.backends[0].deploy
    assert deploy is not None
    (command,) = deploy.commands
    ports = {"8000": str(free_port()), "8001": str(free_port())}
    words = [ports.get(word, word) for word in shlex.split(command)]
    words[words.index("python")] = sys.executable
    argv = ("env", f"--chdir={tmp_path / deploy.folder}", *words)
    url = f"http://127.0.0.1:{ports['8000']}"
    with RunningProcess(argv, cpus=(0,), env={}, log=tmp_path / "deployed.log") as process:
        wait_ready(url, model.name, deadline_s=30, process=process, label="what was deployed")
        assert check_parity(url, model, reference_for(model)).passed
