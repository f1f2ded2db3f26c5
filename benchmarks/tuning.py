"""How few settings `infersweep tune` needs: against a space that is measured whole.

Every setting of a space on our ONNX Runtime server with one CPU is measured with the same short
effort: a closed loop, of which the right answers within a limit count, on two starts in random
orders. A window in which other processes used these CPUs is measured again, twice at most; where
that does not help the rows say that they were not met here.
Then the very code of `tune` searches that table, beside random search and a grid in its order, each
with the default first. A point counts as soon as a setting is started.

    python -m benchmarks.tuning            uses the table that is there
    python -m benchmarks.tuning --fresh    measures it again, 13 minutes on a quiet machine
    python -m benchmarks.tuning --made-up  searches formulas under noise, which needs no server
"""

from __future__ import annotations

import argparse
import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from benchmarks.landscapes import LANDSCAPES, Landscape
from benchmarks.rows import OUT, Row, at_least, stated, write
from loadtest.engine.build import build
from loadtest.folder import ResultsFolder
from loadtest.manifest import describe_machine, describe_run
from loadtest.resources.sampler import Sampler
from loadtest.results import Settings, Trial
from loadtest.rig import Arm, Rig
from loadtest.runner import Fleet, generate
from loadtest.slo.state import evidence_of
from loadtest.trials import PlannedTrial
from loadtest.tune.budget import Budget
from loadtest.tune.outcome import Outcome, Tried
from loadtest.tune.prepare import plan_of
from loadtest.tune.race import Bar
from loadtest.tune.space import Point, Space
from loadtest.tune.study import Place, open_study, search
from serving.host import cpu_budget, split_cpus
from serving.models.repository import Model, find_model
from serving.models.zoo.build import ensure_built

MODEL, BACKEND = "flight_policy", "onnxruntime"
KNOBS = ("max_batch_size", "queue_delay_us", "memory_arena")
USERS, WINDOW_S, LIMIT_MS = 24, 2.5, 4.0
NOISE, SEEDS_MADE_UP = 0.03, 15
"""As many users as a batch has rows would always fill that batch, a resonance that no load has."""
STARTS, MOST_STARTS = 2, 4
QUIET_CORES = 0.2
"""Of the server's CPU and the generator's: what others may use of them, the kernel among these."""
NOISY_SHARE = 0.05
LEAST_POINTS, SHARE, ENOUGH = 60, 0.25, 0.95
SEEDS = range(1, 6)
TABLE = OUT / "tuning-table.json"

Table = Mapping[Point, float]
"""Goodput in requests/s of every setting."""


@dataclass(frozen=True)
class Window:
    """Attributes: ``others_cores``: what other processes used of the CPUs meanwhile."""

    rate_rps: float
    others_cores: float

    @property
    def is_quiet(self) -> bool:
        return self.others_cores <= QUIET_CORES


@dataclass
class _Listener:
    """Prints what happens."""

    def stage(self, text: str) -> None: ...

    def warning(self, text: str) -> None:
        print(text, flush=True)

    def backend_excluded(self, label: str, reason: str) -> None:
        raise RuntimeError(f"{label}: {reason}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fresh", action="store_true", help="measure the table again")
    parser.add_argument("--users", type=int, default=USERS, help="of the closed loop")
    parser.add_argument("--made-up", action="store_true", help="only what needs no server")
    asked = parser.parse_args()
    if asked.made_up:
        write("tuning-made-up", made_up_rows())
        return
    model = find_model(MODEL)
    ensure_built(model, print)
    space = plan_of(model, [BACKEND], cpus=1, only=KNOBS).spaces[BACKEND]
    assert space.members is not None
    if asked.fresh or not TABLE.is_file():
        _write_table(space, measured(model, space, asked.users), asked.users)
    table, noisy = _read_table(space, asked.users)
    found = rows(space, table)
    if noisy > NOISY_SHARE * len(table):
        why = f"other processes used the CPUs while {noisy} of {len(table)} settings were measured"
        found = [replace(row, met=None, note=why) for row in found]
    write("tuning", [*found, *made_up_rows()])


def measured(model: Model, space: Space, users: int) -> Mapping[Point, Sequence[Window]]:
    """The whole space, a fresh server for every window."""
    assert space.members is not None
    build()
    split = split_cpus(cpu_budget(), None, None)
    settings = Settings(
        model=model.name,
        backends=(BACKEND,),
        levels=(users,),
        duration_s=WINDOW_S,
        repeats=1,
        timeout_s=5.0,
        seed=1,
        server_cpus=split.server[:1],
        client_cpus=split.client,
    )
    windows: dict[Point, list[Window]] = {point: [] for point in space.members}
    os.sched_setaffinity(0, split.client)
    with tempfile.TemporaryDirectory(prefix="infersweep-tuning-") as scratch:
        folder = ResultsFolder(Path(scratch))
        folder.write_manifest(describe_run(model, settings, "benchmarks.tuning"))
        rig = Rig(settings, model, 1, folder, _Listener(), Fleet(cpus=split.client))
        rig.open()
        with Sampler(folder.resources) as sampler:
            for start in range(1, MOST_STARTS + 1):
                missing = [p for p in windows if sum(w.is_quiet for w in windows[p]) < STARTS]
                for point in Random(start).sample(missing, len(missing)):
                    arm = Arm(f"start {start} of {point}", BACKEND, model, space.changes(point))
                    windows[point].append(_window(rig, arm, sampler))
                    _tell(space, point, windows)
    return windows


def _tell(space: Space, point: Point, windows: Mapping[Point, Sequence[Window]]) -> None:
    last, count = windows[point][-1], sum(map(len, windows.values()))
    told = " ".join(f"{knob}={value}" for knob, value in space.setting(point).items())
    noise = "" if last.is_quiet else f", others used {last.others_cores:.1f} CPUs"
    print(f"{count}: {told}: {last.rate_rps:,.0f} requests/s{noise}", flush=True)


def _window(rig: Rig, arm: Arm, sampler: Sampler) -> Window:
    """Right answers within the limit, per second of a closed loop."""
    (users,) = rig.settings.levels
    planned = PlannedTrial(arm.name, users, 1)
    with rig.ready(arm, sampler) as ready:
        if ready is None:
            raise RuntimeError(f"{arm.name} answers wrongly")
        spec = rig.spec(ready, (users,), planned.id)
        (output,) = generate(spec, rig.fleet, rig.log(planned.id))
        trial = rig.keep(planned, output, ready, sampler)
    samples = evidence_of(trial, rig.folder.read_histograms(trial.id)).samples
    within = _largest(samples.count, lambda rank: samples.at_rank(rank) <= LIMIT_MS * 1e6)
    cpus = {*rig.settings.server_cpus, *rig.settings.client_cpus}
    return Window(within / trial.window_s, _others_cores(trial, cpus))


def _others_cores(trial: Trial, cpus: Set[int]) -> float:
    """What is busy on ``cpus`` besides server and generator."""
    use = trial.resources
    if use is None:
        return math.inf
    busy = sum(core.busy for cpu, core in use.cores.items() if int(cpu) in cpus)
    return busy - sum(role.cpu_cores or 0.0 for role in use.roles.values())


def _largest(last: int, holds: Callable[[int], bool]) -> int:
    """The last rank from 1 that holds, 0 if none; those below it hold too."""
    low, high = 0, last
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if holds(middle) else (low, middle - 1)
    return low


def rows(space: Space, table: Table) -> Sequence[Row]:
    points = len(table)
    most = math.floor(SHARE * points)
    found = {
        "tune": [share_found(tuned_order(space, table, most, seed), table) for seed in SEEDS],
        "random search": [share_found(random_order(space, seed)[:most], table) for seed in SEEDS],
        "grid": [share_found(grid_order(space)[:most], table)],
    }
    best = max(table.values())
    near = sum(rate >= ENOUGH * best for rate in table.values()) / points
    told = f"of the best goodput after {most} of {points} points"
    tune = found["tune"]
    return [
        at_least("settings in the space", [points], LEAST_POINTS, "settings"),
        at_least(f"tune, share {told}, median of {len(tune)} seeds", tune, ENOUGH, "share"),
        at_least(f"tune, share {told}, worst of {len(tune)} seeds", [min(tune)], ENOUGH, "share"),
        *(
            stated(f"{name}, share {told}, {which}", values, "share")
            for name in ("random search", "grid")
            for which, values in (("median", found[name]), ("worst", [min(found[name])]))
        ),
        *_points_needed(space, table),
        *_from_the_worst(space, table, most),
        stated("share of all settings that reach 95% of the best", [near], "share"),
        stated("default, share of the best", [table[space.default] / best], "share"),
    ]


def made_up_rows() -> Sequence[Row]:
    """Share of seeds whose winner reaches 95% of the best, by formulas under noise."""
    return [
        stated(f"{name}, {how}: seeds that reach 95% of the best", [hits / SEEDS_MADE_UP], "share")
        for name, land in LANDSCAPES.items()
        for how, hits in (
            ("tune", sum(_hits(land, seed, tuned=True) for seed in range(SEEDS_MADE_UP))),
            ("random search", sum(_hits(land, seed, tuned=False) for seed in range(SEEDS_MADE_UP))),
        )
    ]


def _hits(land: Landscape, seed: int, *, tuned: bool) -> bool:
    space, noise = land.space, Random(seed)
    assert space.members is not None
    table = {p: land.goodput(p) * (1 + noise.gauss(0, NOISE)) for p in space.members}
    most = int(land.share * len(table))
    order = tuned_order(space, table, most, seed) if tuned else random_order(space, seed)[:most]
    winner = max(order, key=lambda point: table[point])
    return land.goodput(winner) >= ENOUGH * max(map(land.goodput, space.members))


def _points_needed(space: Space, table: Table) -> Sequence[Row]:
    """Until 95% of the best is first found."""
    orders = {
        "tune": [tuned_order(space, table, len(table), seed) for seed in SEEDS],
        "random search": [random_order(space, seed) for seed in SEEDS],
        "grid": [grid_order(space)],
    }
    return [
        stated(
            f"{name}, settings until 95% of the best",
            [float(needed(order, table)) for order in found],
            "settings",
        )
        for name, found in orders.items()
    ]


def _from_the_worst(space: Space, table: Table, most: int) -> Sequence[Row]:
    """As if the worst setting were the default: a good default leaves nothing to be found."""
    worst = min(table, key=lambda point: table[point])
    axes = zip(space.axes, worst, strict=True)
    begun = replace(space, axes=tuple(replace(axis, default=axis.values[i]) for axis, i in axes))
    found = {
        "tune": [share_found(tuned_order(begun, table, most, seed), table) for seed in SEEDS],
        "random search": [share_found(random_order(begun, seed)[:most], table) for seed in SEEDS],
        "grid": [share_found(grid_order(begun)[:most], table)],
    }
    return [
        stated(f"{name}, begun at the worst setting, {which}", values, "share")
        for name, each in found.items()
        for which, values in (("median", each), ("worst", [min(each)]))
    ]


def needed(order: Sequence[Point], table: Table) -> int:
    enough = ENOUGH * max(table.values())
    return next(n for n, point in enumerate(order, 1) if table[point] >= enough)


def share_found(order: Sequence[Point], table: Table) -> float:
    return max(table[point] for point in order) / max(table.values())


def tuned_order(space: Space, table: Table, most: int, seed: int) -> Sequence[Point]:
    """The settings that the code of ``tune`` tries."""

    def look_up(tried: Tried, _bar: Bar) -> Outcome:
        rate_rps = table[tried.point]
        return Outcome(
            verdict="searched", why="", goodput_rps=rate_rps or None, estimate_rps=rate_rps
        )

    study = open_study(Place(None, "benchmark", "here"), space, {}, seed=seed)
    search(study, Budget(settings=most), look_up)
    return [tried.point for tried in study.tried]


def random_order(space: Space, seed: int) -> Sequence[Point]:
    others = [point for point in space.members or () if point != space.default]
    return [space.default, *Random(seed).sample(others, len(others))]


def grid_order(space: Space) -> Sequence[Point]:
    """As the values stand in the table of knobs."""
    return [space.default, *(point for point in space.members or () if point != space.default)]


def _write_table(space: Space, windows: Mapping[Point, Sequence[Window]], users: int) -> None:
    kept = {
        "machine": describe_machine().model_dump(),
        "model": MODEL,
        "backend": BACKEND,
        "users": users,
        "window_s": WINDOW_S,
        "limit_ms": LIMIT_MS,
        "settings": [
            {"setting": dict(space.setting(point)), "windows": [asdict(one) for one in found]}
            for point, found in windows.items()
        ],
    }
    TABLE.parent.mkdir(exist_ok=True)
    TABLE.write_text(json.dumps(kept, indent=2) + "\n", encoding="utf-8")


def _read_table(space: Space, users: int) -> tuple[Table, int]:
    """The best of the quiet windows, since what disturbs one slows it; else the least disturbed.

    Also gives how many settings have no quiet window.
    """
    kept = json.loads(TABLE.read_text(encoding="utf-8"))
    table, noisy = {}, 0
    for row in kept["settings"]:
        point = tuple(axis.values.index(row["setting"][axis.knob]) for axis in space.axes)
        windows = [Window(**one) for one in row["windows"]]
        quiet = [one.rate_rps for one in windows if one.is_quiet]
        noisy += not quiet
        least = min(windows, key=lambda one: one.others_cores)
        table[point] = max(quiet or [least.rate_rps])
    effort = (kept["users"], kept["window_s"], kept["limit_ms"])
    if set(table) != set(space.members or ()) or effort != (users, WINDOW_S, LIMIT_MS):
        raise SystemExit(f"{TABLE} is of another space or effort; measure it again with --fresh")
    return table, noisy


if __name__ == "__main__":
    main()
