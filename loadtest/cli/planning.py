"""What ``infersweep plan`` does and shows; apart from its options, since it compiles."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import cast, get_args

from rich.console import Console

from loadtest.camera_schedule import Cameras, FramePolicy, Phase
from loadtest.cli.display import SearchDisplay
from loadtest.cli.measure import Run, default_folder, local_run, prepare, rig_of
from loadtest.cli.options import interrupt_on_sigterm, one_of, split_of
from loadtest.confidence import sample_floor
from loadtest.exporting.files import write_text
from loadtest.folder import file_name
from loadtest.plan.demand import CameraDemand, Demand, Rate, Trace, parse_day
from loadtest.plan.make import plan_of
from loadtest.plan.markdown import markdown
from loadtest.plan.options import Payload, option_of
from loadtest.plan.page import NAME as PAGE
from loadtest.plan.page import write_page
from loadtest.plan.predict import Predictor
from loadtest.plan.question import Question
from loadtest.plan.record import Option, Plan, Verification
from loadtest.plan.scaling import measured_scaling
from loadtest.plan.server import Server
from loadtest.plan.terminal import answer_text, plan_table, verification_table
from loadtest.plan.verify import HeldOut, verify
from loadtest.profiles.file import read_profile, require_plannable, require_same_model
from loadtest.profiles.record import Profile
from loadtest.results import Settings
from loadtest.scenarios import find_scenario
from loadtest.scenarios.replay import read_trace
from serving.errors import InfersweepError, LoadError, UsageError
from serving.fronthalf.sizes import frame_bytes
from serving.models.repository import find_model

_LEAST_S, _MOST_S = 30.0, 180.0
"""Of a held-out window: three times what the percentile needs, within these."""


@dataclass(frozen=True)
class Wanted:
    """Where a plan's profiles are and where it goes.

    Attributes:
        length_s: of a held-out window; ``None`` for what the percentile needs.
        frame: WIDTHxHEIGHT of a picture whose weight on the link is shown.
    """

    profiles: tuple[Path, ...]
    out: Path | None
    repository: Path
    verify: bool
    length_s: float | None
    frame: str | None


def demand_of(
    rate: float | None,
    day: str | None,
    trace: Path | None,
    cameras: tuple[int, float, str, str, float] | None,
    *,
    limit_ns: int,
    over_link: bool,
) -> Demand:
    """The one that was given; ``limit_ns`` is the age at which ``drop-late`` drops a frame.

    Over a link a camera sends its next frame without waiting for the answer to the last: else a
    round trip longer than a period would halve its rate.

    Raises:
        UsageError: none or several were given, or their values make no demand.
    """
    if sum(one is not None for one in (rate, trace, cameras)) != 1:
        raise UsageError("name one demand", hint="Give --rate, --cameras or --trace.")
    if day is not None and rate is None:
        raise UsageError("--day is the shape of a --rate", hint="Give --rate of its busiest hour.")
    if rate is not None:
        return Rate(rate, parse_day(day.split(",")) if day else ())
    if trace is not None:
        times, _ = read_trace(trace, "timestamp")
        return Trace(tuple(times))
    assert cameras is not None
    count, fps, phase, policy, jitter_ms = cameras
    phase = cast("Phase", one_of(phase, get_args(Phase), "--phase"))
    policy = cast("FramePolicy", one_of(policy, get_args(FramePolicy), "--policy"))
    made = Cameras(count, fps, phase, round(jitter_ms * 1e6))
    deadline_ns = limit_ns if policy == "drop-late" else 0
    return CameraDemand(made, policy, deadline_ns, in_order=not over_link)


def make_plan(question: Question, wanted: Wanted) -> int:
    """Plan, verify where that is asked, write and show. Returns the exit status.

    Raises:
        ResultsError: a profile cannot be planned from.
        LoadError: no option has a number.
    """
    console = Console()
    given = [(path, read_profile(path)) for path in wanted.profiles]
    for path, profile in given:
        require_plannable(profile, path)
    require_same_model(given, _served_sha256(given[0][1], wanted.repository))
    folder = wanted.out or default_folder(f"plan-{given[0][1].model}")
    folder.mkdir(parents=True, exist_ok=True)
    with console.status("planning") as status:
        options = [
            option_of(path, profile, question, _payloads(profile, wanted.frame), status.update)
            for path, profile in given
        ]
    plan = _write(folder, question, options, given, ())
    tests: list[Verification] = []
    if wanted.verify:
        with interrupt_on_sigterm():
            for one in _tests(console, question, plan, given, wanted, folder):
                tests.append(one)
                plan = _write(folder, question, options, given, tests)
    console.print(plan_table(plan))
    if tests:
        console.print(verification_table(tests))
    console.print(answer_text(plan))
    console.print(f"Plan: {folder / PAGE}", highlight=False)
    if plan.chosen is None:
        raise LoadError(plan.sentence.rstrip("."), hint=f"The rest is in {folder / PAGE}.")
    return 0


def _served_sha256(profile: Profile, repository: Path) -> str | None:
    """Of the model as it lies here; ``None`` where it does not, as on another machine."""
    try:
        return find_model(profile.model, repository).sha256()
    except InfersweepError:
        return None


def _payloads(profile: Profile, frame: str | None) -> tuple[Payload, ...]:
    own = Payload(f"{profile.model}, as profiled", profile.request_bytes)
    if frame is None:
        return (own,)
    width, by, height = frame.partition("x")
    if not by or not width.isdecimal() or not height.isdecimal():
        raise UsageError(f"--frame is {frame!r}", hint="Write for example 640x480.")
    sizes = frame_bytes(int(width), int(height))
    return (own, *(Payload(f"{frame} as {kind}", size) for kind, size in sizes.items()))


def _write(
    folder: Path,
    question: Question,
    options: Sequence[Option],
    given: Sequence[tuple[Path, Profile]],
    tests: Sequence[Verification],
) -> Plan:
    """After every step, so that what was found is kept."""
    servers = [Server.of(profile) for _, profile in given]
    window_s = Predictor(servers[0], question.demand, question.objective.quantile, 0).window_s
    plan = plan_of(
        question,
        options,
        model=given[0][1].model,
        window_s=window_s,
        created=datetime.now().astimezone().isoformat(timespec="seconds"),
        command=shlex.join(["infersweep", *sys.argv[1:]]),
        verifications=tests,
        scaling=measured_scaling(servers),
    )
    write_text(folder / "plan.json", plan.model_dump_json(indent=1) + "\n")
    write_page(folder / PAGE, plan)
    write_text(folder / "plan.md", markdown(plan))
    return plan


def _tests(
    console: Console,
    question: Question,
    plan: Plan,
    given: Sequence[tuple[Path, Profile]],
    wanted: Wanted,
    folder: Path,
) -> Iterator[Verification]:
    """One held-out load for each option with a number: a replica's part after the failures."""
    for (path, profile), option in zip(given, plan.options, strict=True):
        if option.replicas is None:
            continue
        left = max(option.replicas - question.survive, 1)
        load = held_out(question, left)
        run = _run_of(profile, question, load, folder, wanted)
        results, ceiling_rps = prepare(console, run)
        with SearchDisplay(console) as display:
            rig = rig_of(run, results, display, ceiling_rps)
            server = Server.of(profile)
            yield from verify(rig, str(path), server, [load], question.objective)


def held_out(question: Question, replicas: int) -> HeldOut:
    """What one of so many replicas gets, by a schedule of another seed than the prediction's."""
    demand, seed = question.demand, question.seed + 1000
    if isinstance(demand, CameraDemand):
        cameras = demand.cameras
        count = max(round(cameras.count / replicas), 1)
        parameters = {
            "fps": f"{cameras.fps:g}",
            "phase": cameras.phase,
            "jitter_ms": f"{cameras.jitter_ns / 1e6:g}",
            "policy": demand.policy,
        }
        if demand.policy == "drop-late":
            parameters["deadline_ms"] = f"{demand.deadline_ns / 1e6:g}"
        own = CameraDemand(Cameras(count, cameras.fps, cameras.phase), demand.policy)
        return HeldOut("cameras", float(count), parameters, own.rate_rps, own.text, seed)
    rate_rps = float(f"{demand.rate_rps / replicas:.4g}")
    return HeldOut("server", rate_rps, {}, rate_rps, Rate(rate_rps).text, seed)


def _run_of(
    profile: Profile, question: Question, load: HeldOut, folder: Path, wanted: Wanted
) -> Run:
    split = split_of(None, None)
    needed_s = 3 * sample_floor(question.objective.quantile) / load.rate_rps
    length_s = min(max(needed_s, _LEAST_S), _MOST_S)
    settings = Settings(
        model=profile.model,
        backends=(profile.backend,),
        setting=profile.setting,
        scenario=load.scenario,
        parameters=dict(load.parameters),
        level_name=find_scenario(load.scenario).level_name,
        levels=(load.level,),
        duration_s=wanted.length_s or length_s,
        repeats=1,
        timeout_s=10.0,
        seed=load.seed,
        keep_requests=True,
        server_cpus=split.server,
        client_cpus=split.client,
    )
    model = find_model(profile.model, wanted.repository)
    out = folder / f"verify-{file_name(profile.backend)}"
    return local_run(model, settings, out, None)
