"""``infersweep soak``: what a device serves cold, and what it still serves when it is hot."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.display import LiveDisplay
from loadtest.cli.measure import Run, local_run, prepare, rig_of
from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    ClientCpusOption,
    MetricsPortOption,
    ModelOption,
    RepositoryOption,
    ServerCpusOption,
    TimeoutOption,
    interrupt_on_sigterm,
    parse_backends,
    require_positive,
    split_of,
)
from loadtest.folder import ResultsFolder
from loadtest.observing.publishing import Publishing, published
from loadtest.resources.roots import device_roots
from loadtest.results import Settings
from loadtest.soak.page import write_page
from loadtest.soak.record import NAME as RECORD
from loadtest.soak.record import Asked, Flight, SoakRecord
from loadtest.soak.run import Sensors, Soak, require_power, write_record
from loadtest.soak.windows import compare_length_s, window_length_s
from loadtest.summary import write_summary
from serving.errors import INTERRUPTED_EXIT_CODE, InfersweepError, ResultsError, UsageError
from serving.models.repository import Model, find_model

NAME = "soak"
EXAMPLES = (
    "Examples: `infersweep soak --backend onnxruntime` · "
    "`infersweep soak --duration 10m --compare 2m` · "
    "`infersweep soak --rate 30 --hover-w 180 --battery-wh 71`"
)
_BUSY = 2
"""Users per place in a batch: one is answered while another waits."""

_CONNECTIONS = 1024

_TIME = re.compile(r"([0-9.]+)\s*(s|m|min|h)?")
_SECONDS = {None: 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def run(
    model: ModelOption = "image_classifier",
    backend: Annotated[str, typer.Option(help="one, also remote:URL")] = "onnxruntime",
    rate: Annotated[
        float | None, typer.Option(help="requests/s, Poisson; then p99 is compared")
    ] = None,
    users: Annotated[
        int | None,
        typer.Option(help="closed loop [default: 2 for each place in a batch of each instance]"),
    ] = None,
    duration: Annotated[str, typer.Option(help="such as 45m, 90s, 1.5h")] = "45m",
    compare: Annotated[
        str | None,
        typer.Option(help="length of first and last stretch [default: 5m, at most a fifth]"),
    ] = None,
    hover_w: Annotated[
        float | None, typer.Option(help="watts of a hovering craft, for the flight time lost")
    ] = None,
    battery_wh: Annotated[
        float | None, typer.Option(help="watt-hours of the battery, with --hover-w")
    ] = None,
    tegrastats: Annotated[
        Path | None, typer.Option(help="log that tegrastats writes now [default: it is run]")
    ] = None,
    timeout: TimeoutOption = 10.0,
    seed: Annotated[int, typer.Option(help="schedules and order of inputs")] = 1,
    server_cpus: ServerCpusOption = None,
    client_cpus: ClientCpusOption = None,
    out: Annotated[Path | None, typer.Option(help="a new results folder")] = None,
    metrics_port: MetricsPortOption = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
    device_root: Annotated[
        Path | None,
        typer.Option(hidden=True, help="read sensors here, in a folder that is laid out as /"),
    ] = None,
) -> int:
    """Load one server for long, and compare its first with its last minutes.

    Throughput, clocks, temperature, power and throttling; what cannot be read is said with why.
    """
    asked = _asked(duration, compare, hover_w, battery_wh)
    sensors = Sensors(device_roots(device_root), tegrastats, elsewhere=device_root is not None)
    labels = parse_backends(backend)
    if len(labels) > 1:
        raise UsageError(f"--backend {backend} names {len(labels)}", hint="Soak one at a time.")
    if rate is not None and users is not None:
        raise UsageError("--rate and --users are two kinds of load", hint="Give one of them.")
    found = find_model(model, repository)
    split = split_of(server_cpus, client_cpus)
    window_s = window_length_s(asked.compare_s)
    busy = _busy_users(found, len(split.server)) if users is None else users
    settings = Settings(
        model=model,
        backends=labels,
        scenario="closed" if rate is None else "soak",
        level_name="users" if rate is None else "requests/s",
        levels=(
            require_positive(busy, "--users") if rate is None else require_positive(rate, "--rate"),
        ),
        duration_s=window_s,
        repeats=max(round(asked.duration_s / window_s), 1),
        timeout_s=require_positive(timeout, "--timeout"),
        seed=seed,
        connections=max(_CONNECTIONS, busy),
        server_cpus=split.server,
        client_cpus=split.client,
    )
    if asked.flight is not None:
        require_power(sensors)
    console = Console()
    if out is not None and ResultsFolder(out).trials.is_file():
        _refuse_to_resume(ResultsFolder(out), sensors)
    with interrupt_on_sigterm():
        return _soak(console, local_run(found, settings, out, metrics_port), asked, sensors)


def _soak(console: Console, run: Run, asked: Asked, sensors: Sensors) -> int:
    folder, ceiling_rps = prepare(console, run)
    interrupted = False
    failure: InfersweepError | None = None
    with LiveDisplay(console, run.settings, done=0) as display:
        soak = Soak(rig_of(run, folder, display, ceiling_rps), asked, sensors, display)
        publishing = Publishing(
            run.settings.client_cpus, run.metrics_port, display.stage, display.warning
        )
        try:
            with published(folder, publishing):
                soak.run()
        except KeyboardInterrupt:
            interrupted = True
        except InfersweepError as error:
            failure = error
    if folder.trials.is_file():
        record = soak.conclude()
        write_summary(folder)
        page = write_page(folder, record)
        show(console, record)
        console.print(f"Page: {page}", highlight=False)
    if failure is not None:
        raise failure
    return INTERRUPTED_EXIT_CODE if interrupted else 0


def show(console: Console, record: SoakRecord) -> None:
    """The answer, then energy and flight time where they could be measured."""
    console.print(record.sentence, style="bold", highlight=False, markup=False)
    soaked = record.soaked
    if soaked is not None and soaked.efficiency.gross_per_joule is not None:
        net = soaked.efficiency.net_per_joule
        told = "" if net is None else f", {net:.4g} net of idle"
        modes = ", then ".join(record.power_modes)
        where = f"In power mode {modes}, heat-soaked," if modes else "Heat-soaked"
        console.print(
            f"{where} it drew {soaked.gauges.watts:.4g} W: "
            f"{soaked.efficiency.gross_per_joule:.4g} inferences per joule{told}; "
            f"{soaked.efficiency.gross_per_wh:,.0f} per watt-hour.",
            highlight=False,
        )
    if record.flight is not None:
        flown = record.flight
        console.print(
            f"Of {flown.flight_s / 60:.1f} min of hovering it takes {flown.lost_s:.0f} s.",
            highlight=False,
        )
    for what, why in record.missing.items():
        console.print(f"not measured: {what}: {why}", style="dim", highlight=False, markup=False)


def _refuse_to_resume(folder: ResultsFolder, sensors: Sensors) -> None:
    """What lies there is kept and shown; going on would compare two cold beginnings."""
    if not (folder.path / RECORD).is_file():
        raise ResultsError(f"{folder.path} holds another run", hint="Choose another --out.")
    asked = folder.read_derived(RECORD, SoakRecord).asked
    page = write_page(folder, write_record(folder, asked, sensors.roots))
    raise ResultsError(
        f"{folder.path} holds a soak, which is not resumed: the device has cooled down since",
        hint=f"{page} was made again from what it holds. Choose another --out for a new soak.",
    )


def _asked(
    duration: str, compare: str | None, hover_w: float | None, battery_wh: float | None
) -> Asked:
    duration_s = parse_time(duration, "--duration")
    compare_s = parse_time(compare, "--compare") if compare else compare_length_s(duration_s)
    if 2 * compare_s > duration_s:
        raise UsageError(
            f"--compare {compare} is more than half of --duration {duration}",
            hint="First and last stretch must not overlap.",
        )
    if (hover_w is None) != (battery_wh is None):
        raise UsageError(
            "flight time needs both the hover power and the battery",
            hint="Give --hover-w and --battery-wh, or neither.",
        )
    flight = None
    if hover_w is not None and battery_wh is not None:
        flight = Flight(
            hover_w=require_positive(hover_w, "--hover-w"),
            battery_wh=require_positive(battery_wh, "--battery-wh"),
        )
    return Asked(duration_s=duration_s, compare_s=compare_s, flight=flight)


def parse_time(text: str, option: str) -> float:
    """``90``, ``90s``, ``45m`` or ``1.5h`` in seconds.

    Raises:
        UsageError: it is no time above 0.
    """
    form = _TIME.fullmatch(text.strip())
    try:
        seconds = float(form[1]) * _SECONDS[form[2]] if form else 0.0
    except ValueError:
        seconds = 0.0
    if seconds <= 0:
        raise UsageError(f"{option} {text!r} is no time", hint="Write for example 45m or 90s.")
    return seconds


def _busy_users(model: Model, server_cpus: int) -> int:
    """So many that no instance ever waits for a request."""
    config = model.config
    instances = config.instances if config.accelerator == "gpu" else max(server_cpus, 1)
    batch = max(config.max_batch_size, 1) if config.dynamic_batching else 1
    return _BUSY * instances * batch
