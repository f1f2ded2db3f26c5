"""Whole sweeps against real servers: what a fault leaves in the results."""

from __future__ import annotations

import os
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from loadtest.folder import ResultsFolder
from loadtest.manifest import describe_run
from loadtest.results import Settings, Summary, Trial
from loadtest.rig import Rig
from loadtest.runner import Fleet
from loadtest.summary import write_summary
from loadtest.sweep import Sweep
from serving.models.repository import Model
from tests.sample_models import write_tiny
from tests.sample_trials import settings


@dataclass
class Listener:
    """Notes what a sweep tells, and may act on a stage."""

    on_stage: dict[str, object] = field(default_factory=dict)
    trials: list[Trial] = field(default_factory=list)
    excluded: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)

    def warning(self, text: str) -> None:
        self.warnings.append(text)

    def stage(self, text: str) -> None:
        for word, action in list(self.on_stage.items()):
            if word in text:
                del self.on_stage[word]
                assert callable(action)
                action()

    def trial_done(self, trial: Trial, done: int, planned: int) -> None:
        self.trials.append(trial)
        assert done <= planned

    def backend_excluded(self, label: str, reason: str) -> None:
        self.excluded[label] = reason


def sweep(model: Model, folder: Path, listener: Listener, asked: Settings) -> Summary:
    results = ResultsFolder(folder)
    if not results.exists:
        results.write_manifest(describe_run(model, asked, "infersweep compare"))
    Sweep(Rig(asked, model, 2, results, listener, Fleet(cpus=(1,))), listener).run()
    return write_summary(results)


def short(**changes: object) -> Settings:
    return settings(**{"levels": (2,), "duration_s": 1.0, "repeats": 1, **changes})


WINDOW_S, KILL_AFTER_S = 5.0, 4.0
"""Late enough for a slow generator to have begun its window, early enough for a fast one."""


def kill_soon(word: str) -> None:
    """SIGKILL the newest process of this test whose command has ``word``, inside the window."""

    def kill() -> None:
        own = psutil.Process().children(recursive=True)
        servers = [p for p in own if any(word in part for part in p.cmdline())]
        os.kill(servers[-1].pid, signal.SIGKILL)

    threading.Timer(KILL_AFTER_S, kill).start()


def test_two_backends_are_measured_and_their_classes_add_up(tiny: Model, tmp_path: Path) -> None:
    listener = Listener()
    found = sweep(tiny, tmp_path / "out", listener, short(backends=("onnxruntime", "fastapi")))
    assert found.complete
    assert len(listener.trials) == 2
    for backend in found.backends:
        assert backend.parity is not None
        assert backend.parity.passed
        (point,) = backend.points
        assert point.outcomes["ok"] > 100
    for trial in listener.trials:
        assert trial.sent == sum(trial.outcomes.values()) == trial.outcomes["ok"]
        assert 1 < trial.mean_in_flight <= 2.02


def test_a_killed_server_gives_an_invalid_trial_and_the_sweep_goes_on(
    tiny: Model, tmp_path: Path
) -> None:
    listener = Listener({"repeat 1": lambda: kill_soon("supervise.py")})
    asked = short(backends=("onnxruntime",), levels=(1, 2), duration_s=WINDOW_S)
    found = sweep(tiny, tmp_path / "out", listener, asked)
    first, second = listener.trials
    assert first.verdict == "INVALID"
    assert "the server was killed by SIGKILL during the trial" in first.reasons
    assert first.sent == sum(first.outcomes.values())
    assert first.outcomes["connection_error"] > 0
    assert second.outcomes["ok"] > 100
    assert second.server_ended is None
    assert found.complete


@pytest.mark.parametrize(
    ("backend", "name"), [("fastapi", "gunicorn"), ("onnxruntime", "serving.backends.onnxruntime")]
)
def test_a_killed_worker_is_told_although_it_is_replaced(
    tiny: Model, tmp_path: Path, backend: str, name: str
) -> None:
    listener = Listener({"repeat 1": lambda: kill_soon(name)})
    sweep(tiny, tmp_path / "out", listener, short(backends=(backend,), duration_s=WINDOW_S))
    (trial,) = listener.trials
    assert trial.verdict == "INVALID"
    assert any("server process(es) died" in reason for reason in trial.reasons)


def test_an_interrupted_sweep_resumes_where_it_stopped(tiny: Model, tmp_path: Path) -> None:
    asked = short(backends=("null",), repeats=3)

    def interrupt() -> None:
        raise KeyboardInterrupt

    before = set(psutil.Process().children())
    with pytest.raises(KeyboardInterrupt):
        sweep(tiny, tmp_path / "out", Listener({"repeat 2": interrupt}), asked)
    assert set(psutil.Process().children()) <= before
    kept = ResultsFolder(tmp_path / "out").read_trials()
    assert [trial.repeat for trial in kept] == [1]
    listener = Listener()
    found = sweep(tiny, tmp_path / "out", listener, asked)
    assert [trial.repeat for trial in listener.trials] == [2, 3]
    assert found.complete


def test_a_backend_that_answers_differently_is_not_measured(tmp_path: Path) -> None:
    right = write_tiny(tmp_path / "right")
    other = write_tiny(tmp_path / "other", seed=8)
    from serving.deployment import Placement, running

    placement = Placement((0,), 2)
    with running("null", other, placement, repository=tmp_path / "r", logs=tmp_path) as server:
        label = f"remote:{server.url}"
        listener = Listener()
        found = sweep(right, tmp_path / "out", listener, short(backends=(label,)))
    assert not listener.trials
    assert "its answers differ" in listener.excluded[label]
    assert found.ranking.rows == ()


def test_a_backend_that_cannot_start_is_left_out_with_the_reason(
    tiny: Model, tmp_path: Path
) -> None:
    listener = Listener()
    asked = short(backends=("fastapi:torch", "null"))
    found = sweep(tiny, tmp_path / "out", listener, asked)
    assert "ONNX only" in listener.excluded["fastapi:torch"]
    assert [trial.backend for trial in listener.trials] == ["null"]
    assert found.backends[0].excluded
