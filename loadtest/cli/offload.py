"""``infersweep offload``: the model onboard against the model on a server behind a link."""

from __future__ import annotations

import math
from typing import Annotated, cast, get_args

import typer
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadtest.camera_schedule import FramePolicy
from loadtest.cli.display import LiveDisplay
from loadtest.cli.measure import Run, local_run, prepare, rig_of
from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    ClientCpusOption,
    LinkPerConnectionOption,
    MetricsPortOption,
    ModelOption,
    OutOption,
    RepositoryOption,
    ServerCpusOption,
    TimeoutOption,
    interrupt_on_sigterm,
    parse_backends,
    parse_link,
    parse_time_ms,
    require_positive,
    split_of,
)
from loadtest.confidence import sample_floor
from loadtest.folder import ResultsFolder
from loadtest.links.profile import NAMED, link_profile
from loadtest.observing.publishing import Publishing, published
from loadtest.offload.conclude import Asked, conclude
from loadtest.offload.decision import counting
from loadtest.offload.outage import LENGTH_S, START_S
from loadtest.offload.page import share, write_page
from loadtest.offload.record import OffloadRecord
from loadtest.offload.run import OFFLOAD, ONBOARD, Duel, planned
from loadtest.report import numbers
from loadtest.results import Settings
from loadtest.rig import Arm
from loadtest.rounding import four_digits
from loadtest.scenarios import make_load
from serving.errors import INTERRUPTED_EXIT_CODE, LoadError, UsageError
from serving.models.repository import find_model
from serving.readiness import is_grpc

NAME = "offload"
EXAMPLES = (
    "Examples: `infersweep offload --model face_detector --link lte` · "
    "`infersweep offload --backend onnxruntime --remote http://edge-1:8000 --link 5g-sa --fps 15` "
    "· `infersweep offload --link slow-4g --cameras 4 --link-per-connection --outage 10s`"
)
_SCENARIO = "cameras"
_LEAST_S = 10.0


def run(
    link: Annotated[str, typer.Option(help=f"one of {', '.join(NAMED)}, or a TOML or JSON file")],
    model: ModelOption = "image_classifier",
    backend: Annotated[str, typer.Option(help="onboard, started here")] = "onnxruntime",
    remote_backend: Annotated[
        str | None, typer.Option(help="behind the link, started here [default: as onboard]")
    ] = None,
    remote: Annotated[
        str | None, typer.Option(help="or the http address of a server that runs")
    ] = None,
    link_per_connection: LinkPerConnectionOption = False,
    cameras: Annotated[int, typer.Option(help="of the device", min=1)] = 1,
    fps: Annotated[float, typer.Option(help="frames per second of each")] = 10.0,
    deadline: Annotated[str, typer.Option(help="how old a frame may be when answered")] = "150ms",
    policy: Annotated[
        str, typer.Option(help=f"of frames that wait: {', '.join(get_args(FramePolicy))}")
    ] = "latest-only",
    outage: Annotated[
        str, typer.Option(help="length of the link's outage that is simulated, or none")
    ] = "5s",
    duration: Annotated[
        float | None, typer.Option(help="seconds of a window [default: as a p99 age needs]")
    ] = None,
    repeats: Annotated[int, typer.Option(help="server starts of each side")] = 3,
    timeout: TimeoutOption = 10.0,
    seed: Annotated[int, typer.Option(help="schedules, order of visits, and the link")] = 1,
    server_cpus: ServerCpusOption = None,
    client_cpus: ClientCpusOption = None,
    out: OutOption = None,
    metrics_port: MetricsPortOption = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Say whether a device's model should run onboard or behind the link, and what an outage does.

    Both sides get the same frames in turns. Decided by the frames answered in time, then by their
    age.
    """
    labels = _labels(backend, remote_backend, remote)
    deadline_ms = parse_time_ms(deadline, "--deadline")
    require_positive(fps, "--fps")
    asked = Asked(cameras, fps, _policy(policy), deadline_ms, link_profile(link), _outage_s(outage))
    split = split_of(server_cpus, client_cpus)
    settings = Settings(
        model=model,
        backends=tuple(dict.fromkeys(labels)),
        scenario=_SCENARIO,
        parameters={"fps": f"{fps:g}", "policy": policy, "deadline_ms": f"{deadline_ms:g}"},
        level_name=_SCENARIO,
        levels=(float(cameras),),
        duration_s=_length_s(cameras * fps)
        if duration is None
        else require_positive(duration, "--duration"),
        repeats=int(require_positive(repeats, "--repeats")),
        timeout_s=require_positive(timeout, "--timeout"),
        seed=seed,
        link=parse_link(link, labels[1:], per_connection=link_per_connection),
        link_per_connection=link_per_connection,
        server_cpus=split.server,
        client_cpus=split.client,
    )
    make_load(_SCENARIO, float(cameras), settings.parameters, settings.duration_s)
    found = find_model(model, repository)
    arms = (
        Arm(ONBOARD, labels[0], found),
        Arm(OFFLOAD, labels[1], found, link=settings.link),
    )
    with interrupt_on_sigterm():
        return _measure(Console(), local_run(found, settings, out, metrics_port), asked, arms)


def _measure(console: Console, run: Run, asked: Asked, arms: tuple[Arm, Arm]) -> int:
    folder, ceiling_rps = prepare(console, run)
    asked_of_display = planned(run.settings, arms)
    interrupted = False
    with LiveDisplay(console, asked_of_display, done=len(folder.read_trials())) as display:
        publishing = Publishing(
            run.settings.client_cpus, run.metrics_port, display.stage, display.warning
        )
        try:
            with published(folder, publishing):
                Duel(rig_of(run, folder, display, ceiling_rps), arms, display).run()
        except KeyboardInterrupt:
            interrupted = True
    record = conclude(folder, asked, arms)
    _show(console, record, folder)
    if interrupted:
        console.print(f"Interrupted. Resume with: {folder.resume_command()}", highlight=False)
        return INTERRUPTED_EXIT_CODE
    for side in record.sides:
        if not counting(side):
            raise LoadError(
                f"no window of {side.side} counts: {record.decision.sentence.rstrip('.')}",
                hint=f"The rest is in {folder.path}.",
            )
    return 0


def _show(console: Console, record: OffloadRecord, folder: ResultsFolder) -> None:
    table = Table(
        title=f"{record.cameras} cameras at {record.fps:g} fps, deadline {record.deadline_ms:g} ms"
        if record.cameras > 1
        else f"a camera at {record.fps:g} fps, deadline {record.deadline_ms:g} ms",
        title_justify="left",
        box=box.SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
    )
    for name in ("side", "missed", "dropped", "age p50 (ms)", "age p99 (ms)", "fps", "J/inference"):
        table.add_column(name, justify="left" if name == "side" else "right")
    for side in record.sides:
        table.add_row(
            escape(f"{side.side}: {side.backend}"),
            share(side.missed_share),
            share(side.dropped_share),
            numbers.milliseconds(side.age_p50_ms),
            numbers.milliseconds(side.age_p99_ms),
            four_digits(side.delivered_fps),
            four_digits(side.joules_per_inference),
        )
    console.print(table)
    console.print(record.decision.sentence, style="bold", highlight=False, markup=False)
    for told in (record.outage.sentence if record.outage else "", *record.notes):
        if told:
            console.print(told, highlight=False, markup=False)
    console.print(f"Page: {write_page(folder, record)}", highlight=False)


def _labels(backend: str, remote_backend: str | None, remote: str | None) -> tuple[str, str]:
    """Of onboard and of offload."""
    if remote_backend is not None and remote is not None:
        raise UsageError(
            "--remote-backend and --remote name two servers", hint="Leave one of them out."
        )
    behind = f"remote:{remote}" if remote is not None else remote_backend or backend
    labels: list[str] = []
    for text, option in ((backend, "--backend"), (behind, "--remote-backend")):
        found = parse_backends(text)
        if len(found) > 1:
            raise UsageError(f"{option} {text} names {len(found)}", hint="Name one.")
        labels.extend(found)
    if remote is not None and is_grpc(remote):
        raise UsageError(
            "both sides are asked alike, over HTTP", hint="Give the http address of --remote."
        )
    return labels[0], labels[1]


def _policy(text: str) -> FramePolicy:
    if text not in get_args(FramePolicy):
        raise UsageError(
            f"there is no frame policy {text!r}",
            hint=f"Choose {', '.join(get_args(FramePolicy))}.",
        )
    return cast("FramePolicy", text)


def _outage_s(text: str) -> float:
    if text == "none":
        return 0.0
    length_s = parse_time_ms(text, "--outage") / 1e3
    if length_s > LENGTH_S - 2 * START_S:
        raise UsageError(
            f"--outage {text} is more than {LENGTH_S - 2 * START_S:g} s of a minute",
            hint="Give a shorter one, or none.",
        )
    return length_s


def _length_s(frames_per_s: float) -> float:
    """Such that all cameras together have enough frames for a p99, and some to spare."""
    return max(_LEAST_S, math.ceil(1.1 * sample_floor(0.99) / frames_per_s))
