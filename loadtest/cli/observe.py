"""``infersweep observe``: Prometheus, and Grafana where there is Docker, for what runs here."""

from __future__ import annotations

import time
from contextlib import ExitStack
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.options import interrupt_on_sigterm, require_positive
from loadtest.dashboards.rules import rules_for
from loadtest.observing.blocks import load_runs
from loadtest.observing.grafana import grafana
from loadtest.observing.prometheus import Watching, require_alive, watched
from loadtest.targets import targets_folder
from serving.backends.triton.locate import docker_works
from serving.errors import UsageError
from serving.models.weights import cache_folder

NAME = "observe"
EXAMPLES = (
    "Examples: `infersweep observe`, and in another terminal `infersweep compare` · "
    "`infersweep observe results/20260501-120000-image_classifier` to look at a finished run"
)
_POLL_S = 0.5


def run(
    runs: Annotated[
        list[Path] | None, typer.Argument(help="results folders of finished runs to load first")
    ] = None,
    port: Annotated[int, typer.Option(help="of Prometheus", min=1, max=65535)] = 9090,
    grafana_port: Annotated[int, typer.Option(help="of Grafana", min=1, max=65535)] = 3000,
    scrape_interval: Annotated[float, typer.Option(help="seconds, 1 or more")] = 1.0,
    data: Annotated[
        Path | None, typer.Option(help="folder of the time series [default: in the cache]")
    ] = None,
) -> int:
    """Chart every run, server and load generator on this machine until Ctrl-C."""
    console = Console()
    if require_positive(scrape_interval, "--scrape-interval") < 1:
        raise UsageError(
            f"--scrape-interval is {scrape_interval:g}", hint="Give 1 or more: it costs the run."
        )
    # Apart from what was watched live: a run that lies there twice would be counted twice.
    own = cache_folder() / ("prometheus-finished-runs" if runs else "prometheus")
    how = Watching(data or own, rules_for(scrape_interval), port, scrape_interval)
    if runs:
        loaded = load_runs(runs, how.data / "tsdb", console.print)
        first, last = map(datetime.fromtimestamp, (loaded.start_unix_s, loaded.end_unix_s))
        console.print(
            f"loaded {', '.join(loaded.names)}: {first:%Y-%m-%d %H:%M:%S} to {last:%H:%M:%S}",
            highlight=False,
            markup=False,
        )
    with interrupt_on_sigterm(), ExitStack() as stack:
        process = stack.enter_context(watched(how))
        console.print(f"Prometheus: {how.url} (data in {how.data})", highlight=False)
        if docker_works():
            console.print("starting Grafana")
            address = stack.enter_context(grafana(how, grafana_port))
            console.print(f"Grafana: {address}", highlight=False)
        else:
            console.print("Grafana needs Docker, which is not here; docs/observing.md tells more")
        console.print(f"watching {targets_folder()}; Ctrl-C stops it", highlight=False)
        while True:
            require_alive(process)
            time.sleep(_POLL_S)
