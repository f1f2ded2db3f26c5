"""What is concluded from a results folder: made-up trials, no server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from loadtest.folder import ResultsFolder
from loadtest.results import Histograms, Trial
from loadtest.rig import Rig
from loadtest.runner import Fleet
from loadtest.slo.state import CLOSED
from loadtest.tune.budget import Budget
from loadtest.tune.outcome import Outcome, Tried
from loadtest.tune.prepare import plan_of
from loadtest.tune.record import NAME, TuneRecord
from loadtest.tune.run import Contender, Tuning
from loadtest.tune.study import Place, open_study, search
from serving.models.repository import Model
from tests import sample_trials as made
from tests.sample_models import write_tiny

MS = made.MS
REPEATS = 3
DEFAULT, BEST = "onnxruntime", "onnxruntime #1"


def trial(arm: str, level: float, repeat: int, probe: int, latency_ms: float) -> Any:
    kind = {"scenario": CLOSED} if probe == 0 else {"scenario": "server"}
    name = f"{arm}-{level}-{repeat}-{probe}".replace(" ", "").replace("#", "")
    trial, histograms = made.trial(
        arm, level, repeat, [round(latency_ms * MS)] * 400, **kind, id=name, probe=probe
    )
    return trial, histograms.model_copy(update={"trial": name})


def searched(arm: str, repeat: int, rate_rps: float) -> Iterator[tuple[Trial, Histograms]]:
    """One search that ends at ``rate_rps``."""
    if repeat == 1:
        yield trial(arm, 1, 1, 0, 5.0)
        yield trial(arm, 16, 1, 0, 80.0)
    yield trial(arm, rate_rps, repeat, 1, 20.0)
    for probe in (2, 3):
        yield trial(arm, round(1.04 * rate_rps, 1), repeat, probe, 90.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    return write_tiny(tmp_path_factory.mktemp("repository"))


def concluded(
    model: Model, path: Path, default_rps: Sequence[float], best_rps: Sequence[float]
) -> TuneRecord:
    """Rates of each search; the first ones are those of the search over settings."""
    settings = made.settings(
        backends=("onnxruntime",),
        scenario="server",
        levels=(),
        repeats=1,
        duration_s=5.0,
        limit_s=60.0,
        objectives=("p90<=50ms",),
    )
    folder = ResultsFolder(path)
    manifest = made.manifest()
    folder.write_manifest(manifest.model_copy(update={"settings": settings}))
    for arm, rates in ((DEFAULT, default_rps), (BEST, best_rps)):
        for repeat, rate_rps in enumerate(rates, 1):
            for kept in searched(arm, repeat, rate_rps):
                folder.append_trial(*kept)
    plan = plan_of(model, ["onnxruntime"], cpus=1, only=["memory_arena"])
    space = plan.spaces["onnxruntime"]
    study = open_study(Place(None, "a study", "here"), space, {}, seed=1)
    firsts = {0: default_rps[0], 1: best_rps[0]}

    def look_up(tried: Tried, _bar: object) -> Outcome:
        rate_rps = firsts[tried.number]
        return Outcome(verdict="searched", why="", goodput_rps=rate_rps, estimate_rps=rate_rps)

    search(study, Budget(settings=2), look_up)
    contender = Contender("onnxruntime", space, study, plan.models)
    listener = cast("Any", None)
    rig = Rig(settings, model, 2, folder, listener, Fleet(cpus=(1,)))
    tuning = Tuning(rig, [contender], Budget(settings=2), REPEATS, listener)
    record = tuning.conclude()
    assert folder.read_derived(NAME, TuneRecord) == record
    return record


def test_the_gain_is_that_of_the_repeats_and_the_setting_is_ready_to_deploy(
    model: Model, tmp_path: Path
) -> None:
    record = concluded(model, tmp_path, (100.0, 100.0, 101.0, 99.0), (300.0, 120.0, 121.0, 119.0))
    (found,) = record.backends
    assert found.gain is not None
    assert found.gain.decision == "gain"
    assert found.gain.tuned_rps == (120.0, 121.0, 119.0)
    assert found.gain.default_rps == (100.0, 101.0, 99.0)
    assert (found.best, found.chosen, record.complete) == (1, 1, True)
    assert found.deploy is not None
    (file,) = found.deploy.files
    written = (tmp_path / found.deploy.folder / file).read_text()
    assert found.deploy.files[file] == written
    assert 'key: "enable_mem_arena"' in written
    assert [row.backend for row in record.ranking.rows] == [BEST, DEFAULT]


def test_a_setting_that_was_only_lucky_is_not_deployed(model: Model, tmp_path: Path) -> None:
    record = concluded(model, tmp_path, (100.0, 100.0, 101.0, 99.0), (300.0, 101.0, 98.0, 100.5))
    (found,) = record.backends
    assert found.gain is not None
    assert found.gain.decision == "no significant gain"
    assert (found.best, found.chosen) == (1, 0)
    assert found.deploy is not None
    (text,) = found.deploy.files.values()
    assert "enable_mem_arena" not in text


def test_nothing_is_deployed_while_repeats_are_missing(model: Model, tmp_path: Path) -> None:
    record = concluded(model, tmp_path, (100.0, 100.0, 101.0, 99.0), (300.0, 120.0, 121.0))
    (found,) = record.backends
    assert (found.gain, found.chosen, found.deploy, record.complete) == (None, None, None, False)
    assert not (tmp_path / "deploy").exists()
