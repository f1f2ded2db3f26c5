"""A run that is published: what goes wrong beside it never fails it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path

import psutil
import pytest

from loadtest.folder import ResultsFolder
from loadtest.manifest import describe_run
from loadtest.observing import publishing
from loadtest.observing.publishing import Publishing, published
from loadtest.rig import Rig
from loadtest.runner import Fleet
from loadtest.sweep import Sweep
from loadtest.targets import targets_folder
from serving.models.repository import Model
from serving.process import free_port
from tests.integration.test_sweep import Listener, short
from tests.sample_trials import manifest


def scrape(url: str) -> str:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return str(answer.read().decode())


def until_published(url: str) -> None:
    port = int(url.split(":")[2].split("/", maxsplit=1)[0])
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    pytest.fail("the exporter did not come up")


class Told:
    """What the command would show."""

    def __init__(self) -> None:
        self.stages: list[str] = []
        self.warnings: list[str] = []

    def how(self, port: int | None = None) -> Publishing:
        return Publishing((1,), port, self.stages.append, self.warnings.append)


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    made = ResultsFolder(tmp_path / "run")
    made.write_manifest(manifest())
    return made


def test_a_port_in_use_is_told_and_the_run_goes_on(folder: ResultsFolder) -> None:
    told = Told()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with published(folder, told.how(taken.getsockname()[1])) as url:
            assert url is None
    (warning,) = told.warnings
    assert "not published" in warning
    assert "cannot be used" in warning


def test_an_exporter_that_is_killed_is_told_at_the_end(folder: ResultsFolder) -> None:
    told = Told()
    with published(folder, told.how()) as url:
        assert url is not None
        until_published(url)
        own = [
            p for p in psutil.Process().children() if "loadtest.observing.exporter" in p.cmdline()
        ]
        os.kill(own[-1].pid, signal.SIGKILL)
        # Not waited for, since its end is for its parent to collect.
        while own[-1].status() != psutil.STATUS_ZOMBIE:
            time.sleep(0.01)
    (warning,) = told.warnings
    assert "killed by SIGKILL" in warning


def test_an_exporter_that_is_told_many_times_at_once_ends(folder: ResultsFolder) -> None:
    """A parent that is killed sends one SIGTERM for each of its threads."""
    port = free_port()
    argv = [sys.executable, "-m", "loadtest.observing.exporter", str(folder.path)]
    with subprocess.Popen([*argv, "--port", str(port)]) as process:
        until_published(f"http://127.0.0.1:{port}/metrics")
        for _ in range(200):
            process.send_signal(signal.SIGTERM)
        try:
            assert process.wait(timeout=15) == 0
        finally:
            process.kill()


def test_whoever_scrapes_gets_one_more_look_after_the_end(folder: ResultsFolder) -> None:
    told = Told()
    with published(folder, told.how()) as url:
        assert url is not None
        until_published(url)
        scrape(url)
        late: list[str] = []
        looks = threading.Timer(0.7, lambda: late.append(scrape(url)))
        looks.start()
    looks.join()
    assert len(late) == 1
    assert not told.warnings


def test_nobody_is_waited_for_who_never_scraped(
    folder: ResultsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "LAST_SCRAPE_LIMIT_S", 60.0)
    with published(folder, Told().how()) as url:
        assert url is not None
        until_published(url)
        began = time.monotonic()
    assert time.monotonic() - began < 60.0


def test_a_run_whose_counts_cannot_be_kept_is_measured_all_the_same(
    tiny: Model, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files stand where the folders should be."""
    results = ResultsFolder(tmp_path / "out")
    asked = short(backends=("onnxruntime",))
    results.write_manifest(describe_run(tiny, asked, "infersweep compare"))
    (results.path / "live").write_text("")
    (results.path / "resources.jsonl").mkdir()
    monkeypatch.setenv("INFERSWEEP_TARGETS", str(results.path / "manifest.json" / "targets"))
    listener = Listener()
    Sweep(Rig(asked, tiny, 2, results, listener, Fleet(cpus=(1,))), listener).run()
    (trial,) = results.read_trials()
    assert trial.outcomes["ok"] > 100
    assert trial.resources is not None
    assert "sampling ended" in trial.resources.unmeasurable["resources"]
    told = " ".join(listener.warnings)
    for what in ("cannot be announced", "load is not published", "resources were not sampled"):
        assert what in told


def test_a_free_port_is_taken_and_announced_while_it_is_served(folder: ResultsFolder) -> None:
    port = free_port()
    with published(folder, Told().how(port)) as url:
        assert url == f"http://127.0.0.1:{port}/metrics"
        (file,) = targets_folder().glob(f"{os.getpid()}-{port}.json")
        assert '"generator"' in file.read_text()
    assert not file.exists()
