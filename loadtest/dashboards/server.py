"""*Server internals*: what the servers themselves tell, Triton and ours in the same series."""

from __future__ import annotations

from loadtest.dashboards import recording
from loadtest.dashboards.dashboard import (
    Dashboard,
    Section,
    any_of,
    data_source,
    quantile_choice,
    run,
)
from loadtest.dashboards.panels import (
    NO_OBJECTIVE,
    Panel,
    Target,
    heatmap,
    lines,
    seconds,
    stat,
)
from loadtest.dashboards.promql import (
    chosen,
    increase,
    mean,
    quantile,
    rate,
    total,
)
from serving.metrics import table

_NOT_TRITON = "Triton has no such metric"
_FASTAPI_ONLY = "only the FastAPI baseline has this metric"
_VERSION = "{{backend}} {{model}} {{version}}"

_RECORDED = {series.name: series for series in recording.SERVERS}
_SERVED = "infersweep:requests:rate"
"""What every server has, whoever sends it requests."""


def _of(name: str, *where: str) -> str:
    """The recorded series ``infersweep:name`` that the variables choose."""
    series = _RECORDED[f"infersweep:{name}"]
    return chosen(series.name, series.labels, *where)


def _time() -> tuple[Panel, ...]:
    phases = {"queue": table.QUEUE, "compute": table.COMPUTE, "request": table.TOTAL}
    return (
        lines(
            "Queue against compute",
            "Mean time of a right answer's request in the queue, in the engine, and from arrival "
            "to answer. Where the queue outgrows the compute the server is full.",
            "s",
            *(Target(_of(f"{name}_seconds:mean"), f"{name} {_VERSION}") for name in phases),
            log=True,
            height=10,
        ),
        seconds(
            "Queue, compute and request, chosen percentile",
            f"From the histograms of our servers; {_NOT_TRITON}.",
            *(
                Target(
                    quantile("$quantile", metric, "backend", "model", "version"),
                    f"{name} {_VERSION}",
                )
                for name, metric in phases.items()
            ),
            absent=_NOT_TRITON,
            height=10,
        ),
    )


def _work() -> tuple[Panel, ...]:
    within = rate(table.WITHIN_SLO, "backend", "model")
    every = rate(table.REQUESTS, "backend", "model", where=('outcome!="client_fault"',))
    return (
        lines(
            "Requests by outcome",
            "Requests that ended, by how. Triton counts neither those that found its queue full "
            "nor those that did not fit the model.",
            "reqps",
            Target(_of("requests:rate"), f"{{{{outcome}}}} {_VERSION}"),
            many=True,
        ),
        lines(
            "Within the objective",
            "Share of the requests that were answered rightly in time, from arrival to answer; "
            "faults of clients are left out.",
            "percentunit",
            Target(f"{within} / ({every} > 0)", "{{backend}} {{model}}"),
            absent=f"{NO_OBJECTIVE}, or the server is Triton",
        ),
        lines(
            "Mean batch",
            "Rows of a batch.",
            "suffix: rows",
            Target(_of("batch_rows:mean"), _VERSION),
        ),
        heatmap(
            "Batches by rows",
            f"Batches per second and bucket, of the chosen backends together; {_NOT_TRITON}.",
            rate(table.BATCH_ROWS, "le", part="_bucket"),
            "suffix: rows",
            "cps",
            absent=_NOT_TRITON,
        ),
        lines(
            "Inferences",
            "Rows that were computed.",
            "suffix: rows/s",
            Target(_of("inferences:rate"), _VERSION),
        ),
        lines("Batches", "Executions of the model.", "cps", Target(_of("batches:rate"), _VERSION)),
    )


def _now() -> tuple[Panel, ...]:
    return (
        lines(
            "Pending",
            "Requests that wait for an instance.",
            "suffix: requests",
            Target(_of("pending"), _VERSION),
        ),
        lines(
            "In flight",
            f"Requests being answered; {_NOT_TRITON}.",
            "suffix: requests",
            Target(_of("in_flight"), _VERSION),
            absent=_NOT_TRITON,
        ),
        lines(
            "Instances",
            f"Each computes one batch at a time; {_NOT_TRITON}.",
            "suffix: instances",
            Target(total(table.INSTANCES, "backend", "model", "version"), _VERSION),
            absent=_NOT_TRITON,
            width=6,
        ),
        lines(
            "Loaded versions",
            f"Versions that are served; {_NOT_TRITON}.",
            "suffix: versions",
            Target(total(table.LOADED, "backend", "model"), "{{backend}} {{model}}"),
            absent=_NOT_TRITON,
            width=6,
        ),
        stat(
            "Restarts",
            "Processes that ended on their own and were started again in the time range; "
            f"{_NOT_TRITON}.",
            "none",
            Target(increase(table.RESTARTS, "backend"), "{{backend}}"),
            absent=_NOT_TRITON,
            height=8,
            thresholds=((None, "green"), (1, "red")),
            decimals=0,
        ),
        lines(
            "Processes and threads",
            f"Processes that answer, and their threads; {_NOT_TRITON}.",
            "none",
            Target(total(table.PROCESSES, "backend"), "processes {{backend}}"),
            Target(total(table.THREADS, "backend"), "threads {{backend}}"),
            absent=_NOT_TRITON,
            width=6,
        ),
    )


def _http() -> tuple[Panel, ...]:
    return (
        lines(
            "HTTP requests",
            "By route template and status.",
            "reqps",
            Target(
                rate(table.HTTP_REQUESTS, "backend", "method", "route", "status"),
                "{{status}} {{method}} {{route}}",
            ),
            absent=_FASTAPI_ONLY,
        ),
        seconds(
            "HTTP requests, chosen percentile",
            "From a request's head to the end of its answer.",
            Target(
                quantile("$quantile", table.HTTP_SECONDS, "backend", "method", "route"),
                "{{method}} {{route}}",
            ),
            Target(
                mean(table.HTTP_SECONDS, "backend", "method", "route"),
                "mean {{method}} {{route}}",
            ),
            absent=_FASTAPI_ONLY,
        ),
    )


SERVER = Dashboard(
    name="server",
    title="Server internals",
    description="What the servers themselves tell: Triton's metrics and ours in the same series.",
    variables=(
        data_source(),
        run(_SERVED),
        any_of("backend", "Backend", _SERVED, multi=True),
        any_of("model", "Model", _SERVED),
        quantile_choice(),
    ),
    sections=(
        Section("Where the time goes", _time()),
        Section("What is done", _work()),
        Section("State", _now()),
        Section("HTTP", _http()),
    ),
)
