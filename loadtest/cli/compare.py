"""``infersweep compare``: the same model on several backends, one verdict, one page."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.measure import local_run, measure
from loadtest.cli.options import (
    DEFAULT_BACKENDS,
    DEFAULT_REPOSITORY,
    ClientCpusOption,
    LinkOption,
    LinkPerConnectionOption,
    MetricsPortOption,
    ModelOption,
    OutOption,
    RepositoryOption,
    ServerCpusOption,
    SloOption,
    TimeoutOption,
    parse_backends,
    parse_counts,
    parse_link,
    parse_slo,
    require_positive,
    split_of,
)
from loadtest.cli.searching import (
    LimitOption,
    MaxErrorsOption,
    ObjectiveOption,
    SearchWindows,
    search_settings,
)
from loadtest.objective import parse_objectives
from loadtest.results import Settings
from serving.errors import UsageError
from serving.models.repository import find_model

NAME = "compare"
EXAMPLES = (
    "Examples: `infersweep compare --model image_classifier` · "
    "`infersweep compare --objective 'p99<=50ms' --quick` · "
    "`infersweep compare --model face_detector --backends triton,onnxruntime --quick --out X` · "
    "`infersweep compare --backends onnxruntime,fastapi --link lte` · "
    "`infersweep compare --backends onnxruntime,remote:http://127.0.0.1:8000`"
)
QUICK_CONCURRENCY, CONCURRENCY = "1,4", "1,2,4,8"
QUICK_DURATION_S, DURATION_S = 2.0, 4.0
SWEEP_REPEATS, SEARCH_REPEATS = 3, 5
"""Rates of a search are known to 5%, so it takes more repeats to find a difference of 10%."""


def run(
    model: ModelOption = "image_classifier",
    backends: Annotated[
        str, typer.Option(help="comma-separated; fastapi:torch and remote:URL are possible")
    ] = DEFAULT_BACKENDS,
    objective: ObjectiveOption = None,
    max_errors: MaxErrorsOption = None,
    concurrency: Annotated[
        str | None,
        typer.Option(help="users at once, where there is no objective [default: 1,2,4,8]"),
    ] = None,
    duration: Annotated[
        float | None,
        typer.Option(help="seconds of one window, of a search the shortest [default: 4; 5]"),
    ] = None,
    limit: LimitOption = None,
    repeats: Annotated[
        int | None, typer.Option(help="server starts per backend [default: 3; of a search 5]")
    ] = None,
    timeout: TimeoutOption = 10.0,
    seed: Annotated[int, typer.Option(help="order of trials and of inputs")] = 1,
    server_cpus: ServerCpusOption = None,
    client_cpus: ClientCpusOption = None,
    link: LinkOption = None,
    link_per_connection: LinkPerConnectionOption = False,
    out: OutOption = None,
    quick: Annotated[
        bool,
        typer.Option("--quick", help="concurrency 1,4, windows of 2 s; of a search 3 to 20"),
    ] = False,
    rank_unlike: Annotated[
        bool, typer.Option(help="rank servers whose CPUs, precision or provider differ")
    ] = False,
    slo: SloOption = None,
    metrics_port: MetricsPortOption = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Measure one model on several backends and say which serves most.

    With an objective: which serves most within it, by a search on each of them in every repeat.
    """
    found = find_model(model, repository)
    labels = parse_backends(backends)
    split = split_of(server_cpus, client_cpus)
    crossed = parse_link(link, labels, per_connection=link_per_connection)
    if objective or max_errors:
        if concurrency or slo:
            raise UsageError(
                "a search finds its load itself, and --objective is its objective",
                hint="Leave --concurrency and --slo out.",
            )
        settings = search_settings(
            parse_objectives(objective or [], max_errors),
            model=model,
            labels=labels,
            repeats=SEARCH_REPEATS if repeats is None else repeats,
            windows=SearchWindows(duration, limit, quick),
            timeout_s=timeout,
            seed=seed,
            split=split,
            rank_unlike=rank_unlike,
            link=crossed,
            link_per_connection=link_per_connection,
        )
    else:
        levels = concurrency or (QUICK_CONCURRENCY if quick else CONCURRENCY)
        length_s = QUICK_DURATION_S if quick else DURATION_S
        repeats = SWEEP_REPEATS if repeats is None else repeats
        settings = Settings(
            model=model,
            backends=labels,
            levels=tuple(float(level) for level in parse_counts(levels, "--concurrency")),
            duration_s=require_positive(length_s if duration is None else duration, "--duration"),
            repeats=int(require_positive(repeats, "--repeats")),
            timeout_s=require_positive(timeout, "--timeout"),
            seed=seed,
            slo_ms=parse_slo(slo),
            rank_unlike=rank_unlike,
            link=crossed,
            link_per_connection=link_per_connection,
            server_cpus=split.server,
            client_cpus=split.client,
        )
    return measure(Console(), local_run(found, settings, out, metrics_port))
