"""``infersweep profile``: what one server on this machine can do, as one file to plan with."""

from __future__ import annotations

from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Annotated

import typer
from rich import box
from rich.console import Console
from rich.table import Table

from loadtest.cli.display import LiveDisplay
from loadtest.cli.measure import (
    Run,
    default_folder,
    local_run,
    measure,
    published_run,
    rig_of,
)
from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    ClientCpusOption,
    MetricsPortOption,
    ModelOption,
    OutOption,
    RepositoryOption,
    ServerCpusOption,
    TimeoutOption,
    parse_backends,
    require_positive,
    split_of,
)
from loadtest.folder import ResultsFolder
from loadtest.profiles.derive import profile_of
from loadtest.profiles.file import NAME as PROFILE_FILE
from loadtest.profiles.file import write_profile
from loadtest.profiles.measure import OPEN_SHARES, Profiling
from loadtest.profiles.record import Profile
from loadtest.profiles.scheduling import Scheduling, scheduling_of
from loadtest.profiles.service import loop_users
from loadtest.report import numbers
from loadtest.results import Settings
from serving.deployment import Placement, place_for
from serving.errors import INTERRUPTED_EXIT_CODE, LoadError, UsageError
from serving.knobs import parse_setting
from serving.models.repository import Model, find_model
from serving.models.zoo.build import ensure_built

NAME = "profile"
EXAMPLES = (
    "Examples: `infersweep profile --model image_classifier --backend onnxruntime` · "
    "`infersweep profile --backend triton --set max_batch_size=4 --out profiles/triton` · "
    "`infersweep profile --backend remote:http://10.0.0.2:8000 --servers 1`"
)
QUICK_S, WINDOW_S = 3.0, 5.0
QUICK_REPEATS, REPEATS = 2, 3


def run(
    model: ModelOption = "image_classifier",
    backend: Annotated[str, typer.Option(help="one, also remote:URL")] = "onnxruntime",
    knobs: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="turn a knob, see docs/tuning-knobs.md"),
    ] = None,
    servers: Annotated[
        int | None, typer.Option(help="how many stand behind a remote address", min=1)
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="seconds of one window [default: 5; quick: 3]")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(help="starts of the server [default: 3; quick: 2]")
    ] = None,
    timeout: TimeoutOption = 10.0,
    seed: Annotated[int, typer.Option(help="order of windows and of inputs")] = 1,
    server_cpus: ServerCpusOption = None,
    client_cpus: ClientCpusOption = None,
    out: OutOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="two starts, windows of 3 s")] = False,
    metrics_port: MetricsPortOption = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Measure service times per batch size, a sweep over users, start-up, memory and energy.

    The result is one file, profile.json in the results folder; `infersweep plan` reads it, here or
    on another machine.
    """
    found = find_model(model, repository)
    labels = parse_backends(backend)
    if len(labels) > 1:
        raise UsageError(f"--backend {backend} names {len(labels)}", hint="Profile them in turn.")
    label = labels[0]
    remote = label.partition(":")[0] == "remote"
    if servers is not None and not remote:
        raise UsageError("--servers is of a remote address", hint="Leave it out.")
    split = split_of(server_cpus, client_cpus)
    setting = dict(parse_setting(label, knobs or ()))
    placement = Placement(split.server, len(split.server), setting=setting)
    console = Console()
    ensure_built(found, console.print)
    scheduling = _scheduling(label, found, placement)
    length_s = (QUICK_S if quick else WINDOW_S) if duration is None else duration
    count = (QUICK_REPEATS if quick else REPEATS) if repeats is None else repeats
    users = loop_users(instances=scheduling.instances, largest=scheduling.largest)
    settings = Settings(
        model=model,
        backends=labels,
        setting=setting,
        levels=tuple(float(count) for count in users),
        duration_s=require_positive(length_s, "--duration"),
        repeats=int(require_positive(count, "--repeats")),
        timeout_s=require_positive(timeout, "--timeout"),
        seed=seed,
        keep_requests=True,
        open_windows=len(OPEN_SHARES),
        server_cpus=split.server,
        client_cpus=split.client,
    )
    folder = ResultsFolder(out or default_folder(f"profile-{model}"))
    run = local_run(found, settings, folder.path, metrics_port)
    status = measure(console, run, _windows)
    if status == INTERRUPTED_EXIT_CODE:
        return status
    profile = profile_of(folder, servers=servers if remote else 1)
    path = folder.path / PROFILE_FILE
    write_profile(profile, path)
    tell(console, profile, path)
    if profile.verdict == "INVALID":
        raise LoadError(
            f"the profile is INVALID: {'; '.join(profile.reasons)}",
            hint="Measure it on a quiet machine with longer windows (--duration); where batches "
            f"cannot be told apart, with --set max_batch_size=1. What was measured is in {path}.",
        )
    return 0


def _windows(console: Console, run: Run, folder: ResultsFolder, ceiling_rps: float | None) -> None:
    done = len(folder.read_trials())
    with (
        LiveDisplay(console, run.settings, done=done) as display,
        published_run(folder, run, display),
    ):
        Profiling(rig_of(run, folder, display, ceiling_rps), display).run()


def _scheduling(label: str, model: Model, placement: Placement) -> Scheduling:
    """Of the configuration that will be served."""
    with TemporaryDirectory(prefix="infersweep-") as folder:
        place_for(label, model, placement, Path(folder))
        text = (Path(folder) / model.computed.name / "config.pbtxt").read_text("utf-8")
    return scheduling_of(label, text)


def tell(console: Console, profile: Profile, path: Path) -> None:
    """The service times, and where the file is."""
    table = Table(box=box.HORIZONTALS, title=f"{profile.backend}: time that a batch takes, in ms")
    for name in ("batch", "samples", "p50", "p99", "per request"):
        table.add_column(name, justify="right")
    sizes = sorted({size for repeat in profile.repeats for size in repeat.service_ns})
    for size in sizes:
        times = sorted(t for repeat in profile.repeats for t in repeat.service_ns.get(size, ()))
        high = times[min(int(0.99 * len(times)), len(times) - 1)]
        middle = median(times)
        shown = (middle / 1e6, high / 1e6, middle / 1e6 / size)
        table.add_row(str(size), str(len(times)), *(numbers.milliseconds(one) for one in shown))
    console.print(table)
    console.print(f"Profile: {path}", highlight=False)
