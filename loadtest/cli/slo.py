"""``infersweep slo``: the highest arrival rate at which the objectives still hold."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.measure import local_run, measure
from loadtest.cli.options import (
    DEFAULT_REPOSITORY,
    ClientCpusOption,
    LinkOption,
    LinkPerConnectionOption,
    MetricsPortOption,
    ModelOption,
    OutOption,
    RepositoryOption,
    ServerCpusOption,
    TimeoutOption,
    parse_backends,
    parse_link,
    split_of,
)
from loadtest.cli.searching import (
    LimitOption,
    MaxErrorsOption,
    ObjectiveOption,
    SearchWindows,
    search_settings,
)
from loadtest.objective import EXAMPLE, parse_objectives
from serving.errors import UsageError
from serving.models.repository import find_model

NAME = "slo"
EXAMPLES = (
    "Examples: `infersweep slo --backend onnxruntime --objective 'p99<=50ms'` · "
    f"`infersweep slo --objective '{EXAMPLE}' --max-errors 0.05% --quick` · "
    "`infersweep slo --backend remote:http://127.0.0.1:8000 --objective 'p99.9<=0.2s' --out X`"
)


def run(
    model: ModelOption = "image_classifier",
    backend: Annotated[str, typer.Option(help="one, also remote:URL")] = "onnxruntime",
    objective: ObjectiveOption = None,
    max_errors: MaxErrorsOption = None,
    duration: Annotated[
        float | None, typer.Option(help="seconds of the shortest window [default: 5]")
    ] = None,
    limit: LimitOption = None,
    timeout: TimeoutOption = 10.0,
    seed: Annotated[int, typer.Option(help="schedules and order of inputs")] = 1,
    server_cpus: ServerCpusOption = None,
    client_cpus: ClientCpusOption = None,
    link: LinkOption = None,
    link_per_connection: LinkPerConnectionOption = False,
    out: OutOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="windows of 3 to 20 s")] = False,
    metrics_port: MetricsPortOption = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Find the highest rate of Poisson arrivals at which every objective holds.

    "Not reachable" is an answer too: the exit status is 0 whenever the search came to its end.
    """
    objectives = parse_objectives(objective or [], max_errors)
    found = find_model(model, repository)
    labels = parse_backends(backend)
    if len(labels) > 1:
        raise UsageError(
            f"--backend {backend} names {len(labels)}",
            hint="Search on one, or on all with `infersweep compare --objective`.",
        )
    split = split_of(server_cpus, client_cpus)
    settings = search_settings(
        objectives,
        model=model,
        labels=labels,
        repeats=1,
        windows=SearchWindows(duration, limit, quick),
        timeout_s=timeout,
        seed=seed,
        split=split,
        link=parse_link(link, labels, per_connection=link_per_connection),
        link_per_connection=link_per_connection,
    )
    return measure(Console(), local_run(found, settings, out, metrics_port))
