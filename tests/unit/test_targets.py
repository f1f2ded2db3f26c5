"""What a run tells Prometheus's file discovery."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from loadtest.targets import FOLDER_VARIABLE, announced, drop_stale


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "targets"))
    return tmp_path / "targets"


def test_a_target_is_there_while_it_can_be_scraped(folder: Path) -> None:
    warned: list[str] = []
    labels = {"job": "server", "run": 'a "run"\n'}
    with announced("http://127.0.0.1:8002/metrics", labels, warned.append):
        (file,) = folder.glob("*.json")
        (entry,) = json.loads(file.read_text())
        assert entry["targets"] == ["127.0.0.1:8002"]
        assert entry["labels"] == {
            **labels,
            "__scheme__": "http",
            "__metrics_path__": "/metrics",
        }
    assert not list(folder.iterdir())
    assert not warned


def test_a_server_without_metrics_is_not_announced(folder: Path) -> None:
    with announced(None, {}, pytest.fail):
        assert not folder.exists()


def test_a_folder_that_cannot_be_written_costs_a_warning(folder: Path) -> None:
    folder.write_text("a file where the folder should be")
    warned: list[str] = []
    with announced("http://127.0.0.1:8002/metrics", {}, warned.append):
        pass
    (warning,) = warned
    assert "127.0.0.1:8002 cannot be announced" in warning


def test_what_a_killed_process_left_is_dropped_and_others_stay(folder: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    folder.mkdir()
    left = folder / f"{ended.pid}-8002.json"
    by_hand = folder / "my-own.json"
    for file in (left, by_hand):
        file.write_text("[]")
    with announced("http://127.0.0.1:8003/metrics", {}, pytest.fail):
        drop_stale()
        assert not left.exists()
        assert len(list(folder.glob("*.json"))) == 2
    assert by_hand.exists()
