"""A profile through the command: real traces, a real server, real py-spy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.folder import ResultsFolder
from loadtest.profiling.record import NAME, NSIGHT, SERVER, TORCH, ModelProfile
from loadtest.profiling.stacks import parse
from serving.host import gpus
from serving.models.repository import Model


def test_a_profile_says_what_the_runtime_and_the_server_spend_their_time_on(
    tiny: Model, tmp_path: Path
) -> None:
    words = ["profile-model", "--model", tiny.name, "--repository", str(tiny.root)]
    words += ["--backend", "fastapi", "--duration", "1s", "--out", str(tmp_path / "out")]
    command = [sys.executable, "-c", "from loadtest.cli import main; main()", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    folder = ResultsFolder(tmp_path / "out")
    record = folder.read_derived(NAME, ModelProfile)
    assert record.complete
    assert record.sentence in " ".join(done.stdout.split())

    runtime = record.runtime
    assert runtime is not None
    assert runtime.runs > 0
    assert runtime.kernels_ms <= runtime.session_ms
    assert sum(one.share for one in runtime.by_type) == pytest.approx(1)
    events = json.loads((folder.path / runtime.trace).read_text())
    runs = [event for event in events if event["name"] == "model_run"]
    assert len(runs) == runtime.runs + runtime.warm_up_runs

    assert "not in the zoo" in record.missing[TORCH]
    assert bool(record.nsight) == bool(gpus().gpus) == (NSIGHT not in record.missing)
    assert (folder.path / "profile.html").is_file()
    if "may not read" in record.missing.get(SERVER, ""):
        pytest.skip("py-spy may not read other processes here")

    server = record.server
    assert server is not None, record.missing
    stacks = parse((folder.path / server.stacks).read_text())
    assert server.samples == sum(stack.count for stack in stacks)
    assert server.busy == sum(group.samples for group in server.groups) > 0
    assert "HTTP, gRPC and the event loop" in {group.name for group in server.groups}
    assert {process.name for process in server.processes} == {"gunicorn"}
    assert any(process.samples for process in server.processes)
