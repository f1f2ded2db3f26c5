"""The command as a person runs it: one tip measured, once more alone, bad input."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from serving.models.repository import Model

INFERSWEEP = Path(sys.executable).with_name("infersweep")
NAME = "graph-optimisation"


def start(tiny: Model, *arguments: str) -> subprocess.Popen[str]:
    command = (str(INFERSWEEP), "playbook", "--model", "tiny", "--repository", str(tiny.root))
    return subprocess.Popen(
        [*command, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "COLUMNS": "200"},
    )


def playbook(tiny: Model, *arguments: str) -> subprocess.CompletedProcess[str]:
    process = start(tiny, *arguments)
    said, errors = process.communicate(timeout=180)
    return subprocess.CompletedProcess(process.args, process.returncode, said, errors)


@pytest.fixture(scope="module")
def out(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("playbook") / "out"
    done = playbook(tiny, "--only", NAME, "--quick", "--out", str(folder))
    assert done.returncode == 0, done.stderr
    assert "times the baseline" in done.stdout
    return folder


def test_one_tip_leaves_record_page_and_table(out: Path) -> None:
    found = json.loads((out / "playbook.json").read_text())
    assert not found["complete"]
    (record,) = found["experiments"]
    assert record == json.loads((out / "experiments" / f"{NAME}.json").read_text())
    assert [len(arm["windows"]) for arm in record["arms"]] == [3, 3]
    assert record["title"] in (out / "playbook.html").read_text()
    assert record["verdict"] in (out / "playbook.md").read_text()


def test_what_is_named_is_measured_again_in_the_same_folder(tiny: Model, out: Path) -> None:
    before = (out / "experiments" / f"{NAME}.json").read_text()
    done = playbook(tiny, "--only", NAME, "--quick", "--out", str(out))
    assert done.returncode == 0, done.stderr
    assert (out / "experiments" / f"{NAME}.json").read_text() != before


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("--only", "fp17"), 2, NAME),
        (("--only", NAME), 9, "other settings"),
    ],
)
def test_bad_input_is_told_in_one_line(
    tiny: Model, out: Path, arguments: tuple[str, ...], status: int, told: str
) -> None:
    done = playbook(tiny, *arguments, "--out", str(out))
    assert done.returncode == status
    assert told in done.stderr
    assert done.stderr.count("\n") == 1


def test_ctrl_c_keeps_what_was_measured_and_leaves_nobody_behind(
    tiny: Model, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    names = f"{NAME},memory-pattern"
    process = start(tiny, "--only", names, "--quick", "--out", str(out))
    first = out / "experiments" / f"{NAME}.json"
    deadline = time.monotonic() + 120
    while not first.is_file() and time.monotonic() < deadline:
        time.sleep(0.05)
    members = psutil.Process(process.pid).children(recursive=True)
    process.send_signal(signal.SIGINT)
    said, errors = process.communicate(timeout=60)
    assert process.returncode == 130, errors
    assert "Go on with: infersweep playbook --model tiny" in said
    assert members
    assert not any(member.is_running() for member in members)
    kept = json.loads((out / "playbook.json").read_text())
    assert [record["name"] for record in kept["experiments"]] == [NAME]
    assert (out / "playbook.html").is_file()


def test_the_list_says_what_cannot_be_measured_here(tiny: Model) -> None:
    done = playbook(tiny, "list")
    assert done.returncode == 0, done.stderr
    assert NAME in done.stdout
    assert "takes no pictures" in " ".join(done.stdout.split())
