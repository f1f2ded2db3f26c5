"""How near predictions come to loads they have not seen: ``make bench-predict``.

Profiles image_classifier on the three backends, with and without batching, by the command that
users have; then serves Poisson arrivals and cameras of both phases from 30% to 95% of what each
server can do, and holds the simulated p99 against the measured one. At the end each backend gets
an objective search, and so does its simulation: the two rates are held against each other. Takes
about 40 minutes of a machine that does nothing else; ``--quick`` takes a fifth of it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from rich.console import Console

from benchmarks import rows
from benchmarks.rows import OUT, Row, at_most, stated
from benchmarks.virtual import search_settings, search_side
from loadtest.camera_schedule import Cameras
from loadtest.capacity.scheduler import Fleet
from loadtest.capacity.service import Times
from loadtest.capacity.simulate import simulate
from loadtest.cli.display import SearchDisplay
from loadtest.cli.measure import local_run, prepare, rig_of
from loadtest.cli.options import split_of
from loadtest.folder import ResultsFolder
from loadtest.objective import parse_objectives
from loadtest.plan.demand import CameraDemand, Rate
from loadtest.plan.record import Verification
from loadtest.plan.server import Server, Start
from loadtest.plan.verify import HeldOut, compare, verify
from loadtest.profiles.file import read_profile, require_plannable
from loadtest.results import Settings
from serving.models.repository import DEFAULT_ROOT, find_model

MODEL = "image_classifier"
OBJECTIVE = "p99<=100ms"
FPS = 5.0
WITHIN, RATE_WITHIN = 0.15, 0.05
_NS = 1e9


@dataclass(frozen=True)
class Arm:
    """Attributes: ``poisson``, ``random``, ``synchronised``: utilisations of the held-out loads."""

    name: str
    backend: str
    setting: tuple[str, ...]
    poisson: tuple[float, ...]
    random: tuple[float, ...]
    synchronised: tuple[float, ...]
    searched: bool = True


ARMS = (
    Arm("onnxruntime", "onnxruntime", (), (0.3, 0.5, 0.7, 0.85, 0.95), (0.5, 0.85), (0.5,)),
    Arm(
        "onnxruntime, no batching",
        "onnxruntime",
        ("max_batch_size=1",),
        (0.5, 0.8),
        (0.8,),
        (0.6,),
        searched=False,
    ),
    # Triton's replies of one batch leave while the next is computed, so they cannot be told apart.
    Arm(
        "triton, no batching",
        "triton",
        ("max_batch_size=1",),
        (0.5, 0.8),
        (0.8,),
        (0.6,),
        searched=False,
    ),
    Arm("fastapi", "fastapi", (), (0.5, 0.8), (0.8,), (0.6,)),
)


def infersweep(*words: str) -> None:
    """Raises CalledProcessError where the command fails."""
    command = [str(Path(sys.executable).with_name("infersweep")), *words]
    subprocess.run(command, check=True)


def profiled(arm: Arm, folder: Path, *, quick: bool) -> Path:
    """Measured once; a folder that has one is read again."""
    out = folder / f"profile-{arm.name.replace(', ', '-').replace(' ', '-')}"
    if not (out / "profile.json").is_file():
        knobs = [word for one in arm.setting for word in ("--set", one)]
        length = ("--quick",) if quick else ("--duration", "4")
        infersweep(
            *("profile", "--model", MODEL, "--backend", arm.backend, *knobs, *length),
            *("--out", str(out)),
        )
    return out / "profile.json"


def loads_of(arm: Arm, server: Server, *, quick: bool) -> list[HeldOut]:
    """Seeds of their own, so that no load is one that the profile or another load has seen."""
    full_rps = server.saturated_rps
    found = []
    for place, share in enumerate(arm.poisson[-2:] if quick else arm.poisson):
        rate_rps = float(f"{share * full_rps:.4g}")
        text = f"{Rate(rate_rps).text}, {share:.0%}"
        found.append(HeldOut("server", rate_rps, {}, rate_rps, text, 7000 + place))
    for phase, shares in (("random", arm.random), ("synchronised", arm.synchronised)):
        for place, share in enumerate(shares[-1:] if quick else shares):
            cameras = Cameras(max(round(share * full_rps / FPS), 1), FPS, phase)
            demand = CameraDemand(cameras, "fifo")
            found.append(
                HeldOut(
                    "cameras",
                    float(cameras.count),
                    {"fps": f"{FPS:g}", "phase": phase},
                    demand.rate_rps,
                    f"{demand.text}, {demand.rate_rps / full_rps:.0%}",
                    7100 + place,
                )
            )
    return found


def tested(
    arm: Arm, path: Path, folder: Path, console: Console, *, quick: bool
) -> Iterator[Verification]:
    """Every held-out load of one arm, on one start of its server."""
    profile = read_profile(path)
    require_plannable(profile, path)
    server = Server.of(profile)
    loads = loads_of(arm, server, quick=quick)
    split = split_of(None, None)
    settings = Settings(
        model=MODEL,
        backends=(arm.backend,),
        setting=profile.setting,
        scenario="server",
        level_name="requests/s",
        levels=(1.0,),
        duration_s=20.0 if quick else 40.0,
        repeats=1,
        timeout_s=10.0,
        seed=7,
        keep_requests=True,
        server_cpus=split.server,
        client_cpus=split.client,
    )
    out = folder / f"held-out-{path.parent.name}"
    objective = parse_objectives((OBJECTIVE,)).percentiles[0]
    if (out / "manifest.json").is_file():
        # Measured already: compared again, without any load.
        for number in range(1, len(loads) + 1):
            yield compare(ResultsFolder(out), str(path), server, loads, number, objective)
        return
    shutil.rmtree(out, ignore_errors=True)
    run = local_run(find_model(MODEL, DEFAULT_ROOT), settings, out, None)
    results, ceiling_rps = prepare(console, run)
    with SearchDisplay(console) as display:
        rig = rig_of(run, results, display, ceiling_rps)
        for one in verify(rig, str(path), server, loads, objective):
            console.print(
                f"{arm.name}, {one.load}: predicted {one.predicted_ms.value:.1f} ms, measured "
                f"{one.measured_ms:.1f} ms, {one.error:+.1%} {one.verdict} "
                f"(drift {one.drift or 0:+.1%}) {'; '.join(one.reasons)}",
                highlight=False,
            )
            yield one


@dataclass(frozen=True)
class Simulated:
    """A profiled server as a queue in virtual time, for the search of ``benchmarks.virtual``."""

    server: Server

    def started(self, rng: np.random.Generator) -> SimulatedStart:
        start = self.server.starts[int(rng.integers(len(self.server.starts)))]
        return SimulatedStart(self.server, start, rng)


@dataclass(frozen=True)
class SimulatedStart:
    server: Server
    start: Start
    rng: np.random.Generator

    def for_a_window(self) -> SimulatedStart:
        return self

    def answered(self, due_ns: Times) -> Times:
        fleet = Fleet(self.start.service, self.server.scheduler)
        seed = int(self.rng.integers(1 << 32))
        return simulate(fleet, due_ns, seed).done_ns + self.start.delay_ns

    def in_turns(self, users: int, until_s: float) -> tuple[Times, Times]:
        """A closed loop at the measured mean rates; it only brackets the search."""
        service = self.start.service
        alone_ns = service.mean_ns(1) + self.start.delay_ns
        each_ns = alone_ns if users == 1 else _NS / self.server.saturated_rps
        count = int(until_s * _NS / each_ns) + users
        done_ns = np.rint(each_ns * np.arange(1, count + 1)).astype(np.int64)
        return np.maximum(done_ns - round(users * each_ns), 0), done_ns


def predicted_rps(server: Server, seeds: Sequence[int]) -> list[float]:
    """What the search finds on the simulation; the search, its windows and rules are the real."""
    found = []
    for seed in seeds:
        settings = search_settings(seed, OBJECTIVE, repeats=1)
        queue = Simulated(server)
        side = search_side(settings, "s", queue, np.random.default_rng(seed), plain=True)
        found += [one.found_rps for one in side.searches if one.found_rps is not None]
    return found


def measured_rps(arm: Arm, folder: Path, seeds: Sequence[int]) -> list[float]:
    """What ``infersweep slo`` finds on the real server, a fresh one for each search."""
    found = []
    for seed in seeds:
        out = folder / f"slo-{arm.backend}-{seed}"
        if not (out / "summary.json").is_file():
            infersweep(
                *("slo", "--model", MODEL, "--backend", arm.backend, "--objective", OBJECTIVE),
                *("--quick", "--seed", str(seed), "--out", str(out)),
            )
        summary = json.loads((out / "summary.json").read_text())
        for search in summary["searches"]:
            rate = search["answer"]["rate_rps"]
            if rate is not None:
                found.append(float(rate))
    return found


def table(tests: Sequence[Verification]) -> str:
    """As Markdown, for docs/planning.md."""
    lines = [
        "| server | load | utilisation | predicted p99, ms | measured p99, ms | error | drift | |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one in tests:
        expected, high = one.predicted_ms, one.measured_high_ms
        bounds = f"{one.measured_low_ms:.1f} to {'?' if high is None else f'{high:.1f}'}"
        lines.append(
            f"| {one.backend} | {one.load} | {one.utilisation:.0%} | {expected.value:.1f} "
            f"({expected.low:.1f} to {expected.high:.1f}) | {one.measured_ms:.1f} ({bounds}) | "
            f"{one.error:+.1%} | {one.drift or 0:+.1%} | {one.verdict} |"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.predicting")
    parser.add_argument("--quick", action="store_true", help="fewer and shorter windows")
    parser.add_argument("--fresh", action="store_true", help="measure everything again")
    parser.add_argument("--no-search", action="store_true", help="leave the objective searches out")
    asked = parser.parse_args()
    folder = OUT / "predicting"
    if asked.fresh:
        shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    console = Console()
    usable = os.sched_getaffinity(0)
    tests: list[Verification] = []
    found: list[Row] = []
    servers = {}
    for arm in ARMS:
        path = profiled(arm, folder, quick=asked.quick)
        servers[arm.name] = Server.of(read_profile(path))
        own = list(tested(arm, path, folder, console, quick=asked.quick))
        # ``prepare`` moves this process to the client's CPU.
        os.sched_setaffinity(0, usable)
        tests += [one.model_copy(update={"backend": arm.name}) for one in own]
        (folder / "table.md").write_text(table(tests) + "\n")
    found += list(_errors(tests))
    for arm in ARMS:
        if arm.searched and not asked.no_search:
            found.append(_rates(arm, servers[arm.name], folder, quick=asked.quick))
    print(table(tests))
    rows.write("predicting", found)


def _errors(tests: Sequence[Verification]) -> Iterator[Row]:
    valid = [one for one in tests if one.verdict != "INVALID"]
    within = [one for one in valid if one.verdict == "within 15%"]
    yield stated("held-out loads", [len(tests)], "loads")
    yield stated("INVALID loads", [len(tests) - len(valid)], "loads")
    if valid:
        yield at_most("p99 missed by more than 15%", [1 - len(within) / len(valid)], 0.0, "share")
        yield at_most("error of p99, median", [abs(one.error) for one in valid], WITHIN, "share")


def _rates(arm: Arm, server: Server, folder: Path, *, quick: bool) -> Row:
    predicted = predicted_rps(server, range(20, 25 if quick else 30))
    measured = measured_rps(arm, folder, (11,))
    name = f"{arm.name}: rate within {OBJECTIVE}, predicted {np.median(predicted):.4g}"
    error = abs(float(np.median(predicted)) / float(np.median(measured)) - 1)
    row = at_most(name, [error], RATE_WITHIN, "share")
    told = f"measured {', '.join(f'{rate:.4g}' for rate in measured)}"
    return replace(row, note=told)


if __name__ == "__main__":
    main()
