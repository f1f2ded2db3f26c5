"""``infersweep calibrate``: how much load this machine's generator can make."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from loadtest.calibration import measure_ceilings
from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    ModelOption,
    RepositoryOption,
    interrupt_on_sigterm,
    split_of,
)
from loadtest.engine import engine_for
from loadtest.results import Settings
from loadtest.runner import Fleet
from loadtest.validity import CEILING_LIMIT
from serving.host import cpu_budget
from serving.models.repository import find_model
from serving.models.zoo.build import ensure_built

NAME = "calibrate"
EXAMPLES = "Examples: `infersweep calibrate` · `infersweep calibrate --processes 2 --engine python`"


def run(
    model: ModelOption = "image_classifier",
    processes: Annotated[int, typer.Option(help="generator processes", min=1)] = 1,
    engine: Annotated[str | None, typer.Option(help="native or python")] = None,
    server_cpus: Annotated[str | None, typer.Option(help="such as 0-2")] = None,
    client_cpus: Annotated[str | None, typer.Option(help="such as 3")] = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Measure the generator against the null server, and keep its ceiling for later runs."""
    console = Console()
    found = find_model(model, repository)
    ensure_built(found, console.print)
    split = split_of(server_cpus, client_cpus, clients=processes)
    settings = Settings(
        model=model,
        backends=("null",),
        levels=(1.0,),
        duration_s=1.0,
        repeats=1,
        timeout_s=10.0,
        seed=1,
        engine=engine_for("http://localhost", engine),
        processes=processes,
        server_cpus=split.server,
        client_cpus=split.client,
    )
    fleet = Fleet(cpus=split.client, processes=processes)
    with interrupt_on_sigterm():
        rates = measure_ceilings(found, settings, fleet, cpu_budget().usable)
    table = Table("users", "requests/s on the null server")
    for level, rate in rates.items():
        table.add_row(f"{level:g}", f"{rate:,.0f}")
    console.print(table)
    ceiling = max(rates.values())
    console.print(
        f"The ceiling is {ceiling:,.0f} requests/s; runs above {CEILING_LIMIT * ceiling:,.0f}/s "
        "are INVALID (client-bound).",
        highlight=False,
    )
    return 0
