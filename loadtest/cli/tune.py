"""``infersweep tune``: the setting of a server that serves most within the objectives."""

from __future__ import annotations

from typing import Annotated

import typer
from rich.console import Console

from loadtest.cli.measure import local_run
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
    parse_share,
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
from loadtest.objective import EXAMPLE, parse_objectives
from loadtest.tune.budget import parse_budget
from serving.errors import UsageError
from serving.models.repository import find_model

NAME = "tune"
EXAMPLES = (
    "Examples: `infersweep tune --backend onnxruntime --objective 'p99<=50ms'` · "
    f"`infersweep tune --backend onnxruntime,fastapi --objective '{EXAMPLE}' --budget 20m` · "
    "`infersweep tune -o 'p99<=50ms' --knobs max_batch_size,queue_delay_us --budget '15 trials'`"
)
_REPEATS, _QUICK_REPEATS = 5, 3


def run(
    model: ModelOption = "image_classifier",
    backend: Annotated[str, typer.Option(help="comma-separated list")] = "onnxruntime",
    objective: ObjectiveOption = None,
    max_errors: MaxErrorsOption = None,
    budget: Annotated[
        str, typer.Option(help="of each backend: settings such as 30, or a time such as 20m")
    ] = "30",
    accuracy_budget: Annotated[
        str | None, typer.Option(help="also try variants that lose so much at most, such as 1%")
    ] = None,
    oversubscribe: Annotated[
        float, typer.Option(help="inference threads that are allowed per server CPU")
    ] = 1.0,
    knobs: Annotated[
        str | None, typer.Option(help="search over these alone, comma-separated [default: all]")
    ] = None,
    storage: Annotated[
        str | None,
        typer.Option(help="database URL or journal file that several machines share"),
    ] = None,
    allow_unlike: Annotated[
        bool, typer.Option("--allow-unlike", help="go on with a study of another kind of machine")
    ] = False,
    repeats: Annotated[
        int | None, typer.Option(help="of winner and default at the end [default: 5, quick: 3]")
    ] = None,
    duration: Annotated[
        float | None, typer.Option(help="seconds of the shortest window [default: 5]")
    ] = None,
    limit: LimitOption = None,
    timeout: TimeoutOption = 10.0,
    seed: Annotated[int, typer.Option(help="schedules, and the order of settings")] = 1,
    server_cpus: ServerCpusOption = None,
    client_cpus: ClientCpusOption = None,
    out: OutOption = None,
    quick: Annotated[bool, typer.Option("--quick", help="windows of 3 to 20 s")] = False,
    metrics_port: MetricsPortOption = None,
    repository: RepositoryOption = DEFAULT_REPOSITORY,
) -> int:
    """Find the setting that serves most within the objectives, and what to deploy.

    What was found is measured again beside the default; without a significant gain the default
    stays.
    """
    objectives = parse_objectives(objective or [], max_errors)
    limits = parse_budget(budget)
    again = repeats if repeats is not None else _QUICK_REPEATS if quick else _REPEATS
    require_positive(again, "--repeats")
    labels = parse_backends(backend)
    found = find_model(model, repository)
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
    )
    # Optuna takes long to import, and no other command needs it.
    from loadtest.cli.tuning import Search, tune  # noqa: PLC0415

    return tune(
        Console(),
        local_run(found, settings, out, metrics_port),
        Search(
            budget=limits,
            repeats=again,
            knobs=_names(knobs),
            oversubscribe=require_positive(oversubscribe, "--oversubscribe"),
            accuracy_share=parse_share(accuracy_budget, "--accuracy-budget"),
            storage=storage,
            allow_unlike=allow_unlike,
        ),
    )


def _names(text: str | None) -> tuple[str, ...]:
    names = tuple(part.strip() for part in (text or "").split(",") if part.strip())
    if text is not None and not names:
        raise UsageError("--knobs names none", hint="Write for example max_batch_size.")
    return names
