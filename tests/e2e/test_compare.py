"""The command as a person runs it: to its end, interrupted, killed, resumed."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from serving.models.repository import Model

INFERSWEEP = Path(sys.executable).with_name("infersweep")


def start(tiny: Model, out: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [
            *(str(INFERSWEEP), "compare", "--model", "tiny", "--repository", str(tiny.root)),
            *("--duration", "1", "--concurrency", "2", "--out", out.name, *arguments),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=out.parent,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    said, errors = process.communicate(timeout=180)
    return process.returncode, " ".join(said.split()), " ".join(errors.split())


def summary(out: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((out / "summary.json").read_text())
    return found


def status_of(out: Path) -> int:
    """The exit code that the points call for: a tiny model may be too fast for one generator."""
    points = [p for b in summary(out)["backends"] for p in b["points"]]
    assert points
    assert all("client-bound" in reason for p in points for reason in p["reasons"])
    return 0 if any(p["verdict"] == "VALID" for p in points) else 8


def until_measured(out: Path, trials: int) -> None:
    path = out / "trials.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        if path.is_file() and path.read_bytes().count(b"\n") >= trials:
            return
        time.sleep(0.05)
    pytest.fail("nothing was measured in time")


def test_ctrl_c_stops_the_servers_keeps_what_was_measured_and_resumes(
    tiny: Model, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    process = start(tiny, out, "--backends", "onnxruntime", "--repeats", "3")
    until_measured(out, 1)
    members = psutil.Process(process.pid).children(recursive=True)
    assert members
    process.send_signal(signal.SIGINT)
    status, said, _ = finish(process)
    assert status == 130
    assert "Resume with: infersweep compare" in said
    assert not any(member.is_running() for member in members)
    kept = (out / "trials.jsonl").read_text()
    assert not summary(out)["complete"]
    status, said, _ = finish(start(tiny, out, "--backends", "onnxruntime", "--repeats", "3"))
    assert (status, "Resuming" in said) == (status_of(out), True)
    assert (out / "trials.jsonl").read_text().startswith(kept)
    assert (summary(out)["finished_trials"], summary(out)["complete"]) == (3, True)


def test_a_killed_run_leaves_no_server_behind_and_resumes(tiny: Model, tmp_path: Path) -> None:
    out = tmp_path / "out"
    process = start(tiny, out, "--backends", "fastapi", "--repeats", "2")
    until_measured(out, 1)
    members = psutil.Process(process.pid).children(recursive=True)
    commands: dict[int, list[str]] = {}
    for member in members:
        with contextlib.suppress(psutil.NoSuchProcess):
            commands[member.pid] = member.cmdline()
    process.kill()
    finish(process)
    _, left = psutil.wait_procs(members, timeout=20)
    assert not [commands.get(member.pid) for member in left]
    status, _, _ = finish(start(tiny, out, "--backends", "fastapi", "--repeats", "2"))
    assert status == status_of(out)
    assert summary(out)["finished_trials"] == 2


def test_other_settings_in_the_same_folder_are_refused(tiny: Model, tmp_path: Path) -> None:
    out = tmp_path / "out"
    finished, _, _ = finish(start(tiny, out, "--backends", "onnxruntime", "--repeats", "1"))
    assert finished == status_of(out)
    before = (out / "manifest.json").read_bytes()
    status, _, errors = finish(start(tiny, out, "--backends", "onnxruntime", "--repeats", "2"))
    assert status == 9
    assert "other settings" in errors
    assert (out / "manifest.json").read_bytes() == before
