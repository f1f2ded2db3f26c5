"""Made-up searches over settings: of a batching server, and of a results folder without load."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, cast

from loadtest.folder import ResultsFolder
from loadtest.ranking import rank_points
from loadtest.results import Histograms, Trial
from loadtest.rig import Rig
from loadtest.runner import Fleet
from loadtest.slo.state import CLOSED
from loadtest.tune.budget import Budget
from loadtest.tune.gain import gain_of
from loadtest.tune.outcome import Outcome, Tried
from loadtest.tune.prepare import plan_of
from loadtest.tune.race import Bar
from loadtest.tune.record import NAME, DeployRecord, TunedBackend, TuneRecord, tuned_backend
from loadtest.tune.run import Contender, Tuning
from loadtest.tune.space import Point, Space
from loadtest.tune.study import Place, open_study, search
from serving.knobs import Axis
from serving.models.repository import Model
from tests import sample_trials as made

SPACE = Space(
    (
        Axis("max_batch_size", ("1", "2", "4", "8", "16"), "8"),
        Axis("queue_delay_us", ("off", "0", "100", "500", "1000"), "0"),
        Axis("memory_arena", ("on", "off"), "on"),
        Axis("malloc_arenas", ("default", "1", "2"), "default"),
    )
)
OBJECTIVE = "p99<=50ms"


def goodput(point: Point) -> float:
    batch, delay, arena, _ = point
    capacity = 1000 / (0.4 + 3 / 2**batch)
    return capacity * math.exp(-((delay - batch / 2) ** 2) / 6) * (1 - 0.07 * arena)


def evaluate(tried: Tried, bar: Bar) -> Outcome:
    rng = Random(tried.number)
    rate_rps = goodput(tried.point) * (1 + rng.gauss(0, 0.01))
    if tried.number == 5:
        return Outcome(verdict="failed", why="onnxruntime died: <b>Killed</b> (signal 9)")
    if tried.point[1] == 4 and tried.point[0] < 2:
        why = "one request at a time misses an objective already"
        return Outcome(verdict="not reachable", why=why, estimate_rps=0.0, spent_s=9.0)
    if bar.best_rps is not None and rate_rps < bar.best_rps / 1.4:
        why = f"at {bar.best_rps:.0f} requests/s, 30 requests took longer than 50 ms"
        return Outcome(verdict="pruned", why=why, estimate_rps=rate_rps, spent_s=12.0)
    return Outcome(
        verdict="searched",
        why="",
        goodput_rps=rate_rps,
        estimate_rps=rate_rps,
        capacity_rps=1.2 * rate_rps,
        p99_ms=10 + 35 * (rate_rps / 2000) ** 2 + 5 * tried.point[2],
        memory_bytes=(90 + 12 * tried.point[0] - 20 * tried.point[2]) * 1e6,
        spent_s=60.0,
    )


def tuned(label: str = "onnxruntime", budget: int = 24, *, again: bool = True) -> TunedBackend:
    study = open_study(Place(None, "made up", "here"), SPACE, {}, seed=1)
    search(study, Budget(settings=budget), evaluate)
    gain = gain_of((640.0, 652.0, 648.0), (1510.0, 1495.0, 1522.0), 3) if again else None
    found = tuned_backend(label, SPACE, study.tried, [OBJECTIVE], gain)
    deploy = DeployRecord(
        folder=f"deploy/{label}",
        files={
            "model_repository/tiny/config.pbtxt": 'name: "tiny"\nmax_batch_size: 16\n'
            "dynamic_batching { max_queue_delay_microseconds: 100 }\n"
        },
        commands=("python -m serving.backends.onnxruntime --repository model_repository",),
    )
    return found.model_copy(update={"deploy": deploy}) if again else found


def tuning(*backends: TunedBackend) -> TuneRecord:
    found = backends or (tuned(),)
    return TuneRecord(
        manifest=made.manifest(
            backends=tuple(one.backend for one in found),
            scenario="server",
            levels=(),
            objectives=(OBJECTIVE,),
            repeats=1,
        ),
        budget="24 settings",
        repeats=3,
        complete=all(one.complete for one in found),
        backends=found,
        ranking=rank_points((), {}),
    )


_REPEATS = 3
_DEFAULT, _BEST = "onnxruntime", "onnxruntime #1"


def _trial(arm: str, level: float, repeat: int, probe: int, latency_ms: float) -> Any:
    kind = {"scenario": CLOSED} if probe == 0 else {"scenario": "server"}
    name = f"{arm}-{level}-{repeat}-{probe}".replace(" ", "").replace("#", "")
    trial, histograms = made.trial(
        arm, level, repeat, [round(latency_ms * made.MS)] * 400, **kind, id=name, probe=probe
    )
    return trial, histograms.model_copy(update={"trial": name})


def _searched(arm: str, repeat: int, rate_rps: float) -> Iterator[tuple[Trial, Histograms]]:
    """One search that ends at ``rate_rps``."""
    if repeat == 1:
        yield _trial(arm, 1, 1, 0, 5.0)
        yield _trial(arm, 16, 1, 0, 80.0)
    yield _trial(arm, rate_rps, repeat, 1, 20.0)
    for probe in (2, 3):
        yield _trial(arm, round(1.04 * rate_rps, 1), repeat, probe, 90.0)


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
    for arm, rates in ((_DEFAULT, default_rps), (_BEST, best_rps)):
        for repeat, rate_rps in enumerate(rates, 1):
            for kept in _searched(arm, repeat, rate_rps):
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
    tuning = Tuning(rig, [contender], Budget(settings=2), _REPEATS, listener)
    record = tuning.conclude()
    assert folder.read_derived(NAME, TuneRecord) == record
    return record
