"""Recording rules: Triton's metrics and ours as one set of series with one meaning.

Rates look back over four scrapes, as Grafana's ``$__rate_interval`` does: long enough that one
missed scrape leaves no gap, short enough that one step of a sweep does not run into the next. So
the rules are rendered per scrape interval. The windows of the burn rates are those of the alerts.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from loadtest import metrics as client
from loadtest.dashboards import triton
from loadtest.observing.configuration import duration
from serving.metrics import Metric, table

SCRAPES_IN_A_RATE = 4
VERSION = ("run", "backend", "model", "version")
SERVED = ("run", "backend", "model")

BURN_WINDOWS = ("20s", "1m", "5m", "30m", "1h", "6h")


@dataclass(frozen=True)
class Recorded:
    """One recorded series.

    Attributes:
        query: PromQL, from the window of its rates.
        meaning: for readers of the documentation.
        triton: which of Triton's metrics stand in it; none where it has nothing like it.
    """

    name: str
    labels: tuple[str, ...]
    unit: str
    meaning: str
    query: Callable[[str], str]
    triton: tuple[str, ...] = ()


def rate_window(scrape_interval_s: float) -> str:
    return duration(SCRAPES_IN_A_RATE * scrape_interval_s)


def _rate(sample: str, window: str, by: tuple[str, ...] = VERSION) -> str:
    return f"sum by ({', '.join(by)}) (rate({sample}[{window}]))"


def _per_second(ours: str, theirs: str) -> Callable[[str], str]:
    return lambda window: f"{_rate(ours, window)}\nor\n{_rate(theirs, window)}"


def _mean(metric: Metric, theirs: str, count: str, per_unit: str = "") -> Callable[[str], str]:
    """Sum by count; nothing where nothing was observed. ``per_unit`` turns theirs into ours."""

    def query(window: str) -> str:
        ours = (
            f"{_rate(metric.name + '_sum', window)}"
            f"\n/ ({_rate(metric.name + '_count', window)} > 0)"
        )
        return f"{ours}\nor\n{_rate(theirs, window)}{per_unit}\n/ ({_rate(count, window)} > 0)"

    return query


def _requests(window: str) -> str:
    by = (*VERSION, "outcome")
    ours = _rate(table.REQUESTS.sample, window, by)
    right = f'label_replace({_rate(triton.SUCCESS, window)}, "outcome", "ok", "", "")'
    # A reason that is not known keeps its own name rather than vanish.
    failed = f'label_replace(rate({triton.FAILURE}[{window}]), "outcome", "$1", "reason", "(.*)")'
    for reason, outcome in triton.REASONS.items():
        failed = f'label_replace({failed}, "outcome", "{outcome}", "reason", "{reason}")'
    return f"{ours}\nor\n{right}\nor\nsum by ({', '.join(by)}) (\n  {failed}\n)"


def _now(ours: str, theirs: str = "") -> Callable[[str], str]:
    parts = [f"sum by ({', '.join(VERSION)}) ({name})" for name in (ours, theirs) if name]
    return lambda _: "\nor\n".join(parts)


_SECONDS = " / 1e6"

SERVERS = (
    Recorded(
        "infersweep:requests:rate",
        (*VERSION, "outcome"),
        "requests/s",
        "requests by how they ended",
        _requests,
        (triton.SUCCESS, triton.FAILURE),
    ),
    Recorded(
        "infersweep:inferences:rate",
        VERSION,
        "rows/s",
        "rows that were computed",
        _per_second(table.BATCH_ROWS.name + "_sum", triton.INFERENCES),
        (triton.INFERENCES,),
    ),
    Recorded(
        "infersweep:batches:rate",
        VERSION,
        "batches/s",
        "executions of the model",
        _per_second(table.BATCH_ROWS.name + "_count", triton.EXECUTIONS),
        (triton.EXECUTIONS,),
    ),
    Recorded(
        "infersweep:batch_rows:mean",
        VERSION,
        "rows",
        "rows of a batch",
        _mean(table.BATCH_ROWS, triton.INFERENCES, triton.EXECUTIONS),
        (triton.INFERENCES, triton.EXECUTIONS),
    ),
    Recorded(
        "infersweep:queue_seconds:mean",
        VERSION,
        "seconds",
        "time a request waited, of right answers",
        _mean(table.QUEUE, triton.QUEUE_US, triton.SUCCESS, _SECONDS),
        (triton.QUEUE_US, triton.SUCCESS),
    ),
    Recorded(
        "infersweep:compute_seconds:mean",
        VERSION,
        "seconds",
        "time a request's batch was inside the engine, of right answers",
        _mean(table.COMPUTE, triton.COMPUTE_US, triton.SUCCESS, _SECONDS),
        (triton.COMPUTE_US, triton.SUCCESS),
    ),
    Recorded(
        "infersweep:request_seconds:mean",
        VERSION,
        "seconds",
        "time from a request's arrival to its answer, of right answers",
        _mean(table.TOTAL, triton.REQUEST_US, triton.SUCCESS, _SECONDS),
        (triton.REQUEST_US, triton.SUCCESS),
    ),
    Recorded(
        "infersweep:pending",
        VERSION,
        "requests",
        "requests that wait for an instance",
        _now(table.PENDING.name, triton.PENDING),
        (triton.PENDING,),
    ),
    Recorded(
        "infersweep:in_flight",
        VERSION,
        "requests",
        "requests being answered",
        _now(table.IN_FLIGHT.name),
    ),
)


def _missed(within: Metric, every: str, by: tuple[str, ...], window: str) -> str:
    good = _rate(within.sample, window, by)
    return f"1 - {good}\n/ ({_rate(every, window, by)} > 0)"


_OBJECTIVES: dict[str, tuple[Metric, str, tuple[str, ...]]] = {
    # A server cannot help what its clients do wrong.
    "server": (table.WITHIN_SLO, f'{table.REQUESTS.sample}{{outcome!="client_fault"}}', SERVED),
    "client": (client.WITHIN_SLO, client.REQUESTS.sample, client.LOAD),
}


def burn(view: str, window: str) -> Recorded:
    """Share of the requests that missed the objective; absent where none was stated."""
    within, every, by = _OBJECTIVES[view]
    return Recorded(
        f"infersweep:{view}_slo_errors:ratio_rate{window}",
        by,
        "ratio",
        f"share of the requests of the last {window} that missed the objective, as the {view} "
        "counts them",
        lambda _: _missed(within, every, by, window),
    )


VIEWS = tuple(_OBJECTIVES)
BURNS = tuple(burn(view, window) for view in VIEWS for window in BURN_WINDOWS)
RECORDED = (*SERVERS, *BURNS)
