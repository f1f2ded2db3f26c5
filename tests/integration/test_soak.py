"""A soak of a few seconds through the command, with the sensors of a faked Jetson."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from loadtest.energy_use import flight_time_lost_s
from loadtest.folder import ResultsFolder
from loadtest.resources.log import read_samples
from loadtest.resources.roots import Roots
from loadtest.resources.tegrastats import TegraLog
from loadtest.rig import Rig
from loadtest.soak.record import NAME, Asked, SoakRecord
from loadtest.soak.run import Sensors, Soak
from loadtest.sweep import SweepListener
from serving.errors import ResultsError
from serving.models.repository import Model
from tests.fake_jetson import TEGRASTATS, FakeJetson
from tests.sample_trials import settings

WATTS, HOVER_W, BATTERY_WH = 6.0, 180.0, 71.0


def soak(model: Model, device: Path, out: Path) -> subprocess.CompletedProcess[str]:
    words = ["soak", "--model", model.name, "--repository", str(model.root), "--out", str(out)]
    words += ["--duration", "3s", "--compare", "1.5s"]
    words += ["--hover-w", str(HOVER_W), "--battery-wh", str(BATTERY_WH)]
    words += ["--device-root", str(device)]
    command = [sys.executable, "-c", "from loadtest.cli import main; main()", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_tegrastats_is_run_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "tegrastats"
    program.write_text(f"#!/bin/sh\necho '{TEGRASTATS}'\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    rig = SimpleNamespace(folder=ResultsFolder(tmp_path), settings=settings(client_cpus=(0,)))
    listener = cast("SweepListener", None)
    soaking = Soak(cast("Rig", rig), Asked(duration_s=1, compare_s=1), Sensors(Roots()), listener)
    with soaking.tegrastats() as log:
        assert log is not None
        assert TegraLog(log).newest().rails["VDD_IN"] == 5.263


def test_a_soak_keeps_its_windows_with_the_sensors_and_is_not_resumed(
    tiny: Model, tmp_path: Path
) -> None:
    device = FakeJetson(tmp_path / "device")
    device.rails(milliwatts=round(WATTS * 1000))
    device.cooler("cpu-throttle-alert", state=1)
    folder = ResultsFolder(tmp_path / "out")
    done = soak(tiny, device.root, folder.path)
    assert done.returncode == 0, done.stdout + done.stderr
    record = folder.read_derived(NAME, SoakRecord)
    assert record.complete
    assert [one.trial for one in record.windows] == [trial.id for trial in folder.read_trials()]
    assert len(record.windows) == record.manifest.settings.repeats == 3
    assert record.sentence in " ".join(done.stdout.split())
    last = record.windows[-1]
    assert last.inferences_per_s > 0
    assert last.gauges.watts == pytest.approx(WATTS)
    assert last.gauges.celsius["cpu-thermal"] == pytest.approx(45.0)
    assert last.gauges.limits["cpu:policy0"] == pytest.approx(1_344e6)
    assert last.throttled == ("cooling device cpu-throttle-alert",)
    assert (record.power_modes, record.board.l4t) == (("25W",), "36.4.3")
    assert record.flight is not None
    assert record.flight.lost_s == pytest.approx(flight_time_lost_s(HOVER_W, BATTERY_WH, WATTS))
    assert record.starts[0].first_answer_s is not None
    assert any(sample.memory for sample in read_samples(folder.resources))

    page = folder.path / "soak.html"
    page.unlink()
    again = soak(tiny, device.root, folder.path)
    assert again.returncode == ResultsError.exit_code
    assert "cooled down" in again.stderr
    assert page.is_file()
    assert folder.read_derived(NAME, SoakRecord).windows == record.windows
