"""Pieces of PromQL over rows of the table, of what a dashboard's variables choose.

A variable stands inside a raw string, formatted as a regular expression: so a name with quotes,
backslashes, line ends or the signs of a regular expression selects itself and nothing else. Only a
backtick cannot stand there.
"""

from __future__ import annotations

from loadtest.metrics import TABLE
from loadtest.results import IN_PERCENTILES, NEVER_SENT
from serving.metrics import SERVER_METRICS, Metric

OBJECTIVE_SHARE = 0.99
"""Share of the requests that must meet the objective."""

ANSWERED_OR_GIVEN_UP = f'outcome=~"{"|".join(IN_PERCENTILES)}"'
"""What percentiles are of, as in a report: a wait that was given up took that long or longer."""

SENT = f'outcome!~"{"|".join(NEVER_SENT)}"'

TARGET_LABELS = ("run", "backend")
"""What the target of a server adds to the labels of its metrics."""

RATE, RANGE, STEP = "$__rate_interval", "$__range", "$__interval"
"""Grafana's: four scrapes or more; the time range shown; the time between two points."""

_CHOSEN = ("run", "backend", "model")

LABELS = {
    metric.name: (*(TARGET_LABELS if metric in SERVER_METRICS else ()), *metric.labels)
    for metric in TABLE
}
"""Every label that a query may use, by metric; histograms have ``le`` on top."""


def chosen(name: str, labels: tuple[str, ...], *where: str) -> str:
    """The series ``name`` that the variables choose and ``where`` matches."""
    choice = (f"{label}=~`${{{label}:regex}}`" for label in _CHOSEN if label in labels)
    return f"{name}{{{', '.join((*choice, *where))}}}"


def series(metric: Metric, *where: str, part: str = "") -> str:
    """A selector; ``part`` of a histogram is ``_bucket``, ``_sum`` or ``_count``."""
    return chosen(metric.sample + part, LABELS[metric.name], *where)


def rate(metric: Metric, *by: str, where: tuple[str, ...] = (), part: str = "") -> str:
    """Per second, summed by ``by``."""
    return f"sum by ({', '.join(by)}) (rate({series(metric, *where, part=part)}[{RATE}]))"


def increase(metric: Metric, *by: str, where: tuple[str, ...] = ()) -> str:
    """Over the time range shown, summed by ``by``."""
    return f"sum by ({', '.join(by)}) (increase({series(metric, *where)}[{RANGE}]))"


def largest(metric: Metric, *by: str, where: tuple[str, ...] = ()) -> str:
    return f"max by ({', '.join(by)}) ({series(metric, *where)})"


def total(metric: Metric, *by: str) -> str:
    return f"sum by ({', '.join(by)}) ({series(metric)})"


def quantile(q: str, metric: Metric, *by: str, where: tuple[str, ...] = ()) -> str:
    """Of the summed buckets. Nothing, rather than NaN, where nothing was observed."""
    buckets = rate(metric, *by, "le", where=where, part="_bucket")
    return f"histogram_quantile({q}, {buckets}) >= 0"


def mean(metric: Metric, *by: str) -> str:
    """Sum by count of a histogram. Nothing where nothing was observed."""
    return f"{rate(metric, *by, part='_sum')} / ({rate(metric, *by, part='_count')} > 0)"
