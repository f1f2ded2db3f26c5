"""Load that crosses a real link, and a device's model onboard against one behind the link."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.folder import ResultsFolder
from loadtest.offload.record import NAME, OffloadRecord
from loadtest.results import Summary
from serving.models.repository import Model

ONE_WAY_MS = 10.0


@pytest.fixture(scope="module")
def link(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("links") / "yard.toml"
    file.write_text(
        f"one_way_delay_ms = {ONE_WAY_MS}\nuplink_bps = 200e6\ndownlink_bps = 200e6\n"
        '[sources]\none_way_delay_ms = "a test"\n'
    )
    return file


def infersweep(model: Model, command: str, out: Path, *words: str) -> None:
    argv = [command, "--model", model.name, "--repository", str(model.root), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, "-c", "from loadtest.cli import main; main()", *argv, *words],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_load_crosses_its_link_and_the_results_say_so(
    tiny: Model, link: Path, tmp_path: Path
) -> None:
    """A request of the tiny model takes well below a millisecond besides its way."""
    words = ("--backend", "onnxruntime", "--levels", "1", "--duration", "2")
    infersweep(tiny, "load", tmp_path / "out", *words, "--link", str(link))
    folder = ResultsFolder(tmp_path / "out")
    (found,) = folder.read_derived("summary.json", Summary).backends
    (point,) = found.points
    p50 = point.service_time_ms.p50
    assert p50 is not None
    assert 2 * ONE_WAY_MS <= p50.value_ms < 5 * ONE_WAY_MS
    manifest = folder.read_manifest()
    assert manifest.link is not None
    assert manifest.link.sources["one_way_delay_ms"] == "a test"
    assert manifest.link.sources["uplink_bps"] == "assumption"
    assert manifest.wire.link.startswith("yard: one-way delay 10 ms")
    assert found.facts["link"] == manifest.wire.link
    assert "10 ms (a test)" in folder.report.read_text()


def test_onboard_and_offload_get_the_same_frames_and_the_link_makes_them_older(
    tiny: Model, link: Path, tmp_path: Path
) -> None:
    words = ("--fps", "50", "--deadline", "100ms", "--duration", "2", "--repeats", "1")
    infersweep(tiny, "offload", tmp_path / "out", *words, "--link", str(link), "--outage", "2s")
    folder = ResultsFolder(tmp_path / "out")
    record = folder.read_derived(NAME, OffloadRecord)
    onboard, offload = record.sides
    assert onboard.age_p50_ms is not None
    assert offload.age_p50_ms is not None
    assert offload.age_p50_ms - onboard.age_p50_ms > ONE_WAY_MS
    assert (onboard.link, offload.link) == ("none", record.manifest.wire.link)
    assert abs(onboard.repeats[0].frames - offload.repeats[0].frames) <= 1
    # One repeat of each decides nothing, and both are this machine.
    assert record.decision.better is None
    assert "repeats of onboard" in record.decision.sentence
    assert record.complete
    assert "the same CPUs" in record.notes[0]
    assert record.outage is not None
    _, alone, falling_back = record.outage.outcomes
    assert falling_back.missed_share.value < alone.missed_share.value
    assert (folder.path / "offload.html").is_file()
