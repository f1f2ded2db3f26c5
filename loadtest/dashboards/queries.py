"""Every query of a dashboard with its place, and Grafana's variables put in as Grafana does it.

So whoever checks dashboards against a Prometheus asks what Grafana would ask.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from loadtest.dashboards.panels import NO_CEILING, NO_DATA, NO_OBJECTIVE
from loadtest.metrics import CEILING, SLO
from loadtest.observing.ask import Prometheus, Series

Json = Mapping[str, Any]


class Pattern(str):
    """A value that is a regular expression already, as *All* is: put in as it stands."""

    __slots__ = ()


Value = str | Sequence[str]
"""Of a variable; several where it is ``multi``."""

_LABEL_VALUES = re.compile(r"label_values\((?:(?P<match>.+),\s*)?(?P<label>\w+)\)")
_VARIABLE = re.compile(r"\$\{(\w+)(?::(\w+))?\}|\$(\w+)")
_LEAST_SCRAPES = 4
_MAY_BE_ABSENT = {SLO.sample: NO_OBJECTIVE, CEILING.sample: NO_CEILING}
"""Metrics that not every run has, for panels that also show what every run has."""


@dataclass(frozen=True)
class Query:
    """One query.

    Attributes:
        place: dashboard, panel and letter, for messages.
        kind: ``values`` asks for the values of ``label`` among the series of ``expr``.
        legend: names a series; ``{{label}}`` stands for its label.
        reason: what the panel says when nothing comes back; ``None`` where that is a fault.
    """

    place: str
    expr: str
    kind: Literal["instant", "range", "values"]
    panel_id: int | None = None
    label: str = ""
    legend: str = ""
    reason: str | None = None


@dataclass(frozen=True)
class Span:
    """A time range as a dashboard shows it.

    Attributes:
        step_s: between two points: ``$__interval``.
    """

    start_s: float
    end_s: float
    scrape_interval_s: float
    step_s: float

    @property
    def rate_interval_s(self) -> float:
        """Source: Grafana's documentation of its Prometheus data source, "$__rate_interval"."""
        return max(self.step_s + self.scrape_interval_s, _LEAST_SCRAPES * self.scrape_interval_s)


def queries(dashboard: Json) -> Iterator[Query]:
    """Of variables, annotations and panels, in the order they stand in."""
    title = dashboard["title"]
    for variable in dashboard["templating"]["list"]:
        if variable["type"] == "query":
            found = _LABEL_VALUES.fullmatch(variable["query"]["query"])
            if found is None:
                raise ValueError(f"{variable['query']['query']!r} is not label_values()")
            place = f"{title}, variable {variable['name']}"
            yield Query(place, found["match"] or "", "values", label=found["label"])
    for annotation in dashboard["annotations"]["list"]:
        place = f"{title}, annotation {annotation['name']}"
        yield Query(place, annotation["expr"], "range", legend=annotation["titleFormat"])
    for panel in dashboard["panels"]:
        told = panel.get("fieldConfig", {}).get("defaults", {}).get("noValue")
        told = None if told == NO_DATA else told
        for target in panel.get("targets", []):
            yield Query(
                f"{title}, {panel['title']}, {target['refId']}",
                target["expr"],
                "instant" if target["instant"] else "range",
                panel_id=panel["id"],
                legend=target["legendFormat"],
                reason=told or _absence(target["expr"]),
            )


def _absence(expr: str) -> str | None:
    return next((why for sample, why in _MAY_BE_ABSENT.items() if sample in expr), None)


def choices(dashboard: Json) -> dict[str, Value]:
    """What a dashboard chooses before anybody touched it, of the variables that need no server."""
    found: dict[str, Value] = {}
    for variable in dashboard["templating"]["list"]:
        if variable.get("includeAll"):
            found[variable["name"]] = Pattern(variable["allValue"])
        elif variable["type"] == "custom":
            found[variable["name"]] = variable["current"]["value"]
    return found


def interpolate(expr: str, chosen: Mapping[str, Value], span: Span) -> str:
    """``expr`` with every variable put in, escaped as its format says.

    Raises:
        KeyError: ``chosen`` lacks a variable.
    """
    times = {
        "__interval": _ms(span.step_s),
        "__rate_interval": _ms(span.rate_interval_s),
        "__range": f"{round(span.end_s - span.start_s)}s",
    }

    def put(found: re.Match[str]) -> str:
        name, form = found[1] or found[3], found[2]
        return times[name] if name in times else _formatted(chosen[name], form)

    return _VARIABLE.sub(put, expr)


def _ms(seconds: float) -> str:
    return f"{round(seconds * 1000)}ms"


def _formatted(value: Value, form: str | None) -> str:
    """Source: Grafana's formats of variables; those that the dashboards use."""
    if isinstance(value, Pattern):
        return value
    values = [value] if isinstance(value, str) else list(value)
    if form != "regex":
        (only,) = values
        return only
    escaped = [re.sub(r"[\\^$*+?.()|\[\]{}/]", r"\\\g<0>", one) for one in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


@dataclass(frozen=True)
class Answer:
    """What came back for a query; ``values`` of a ``values`` query, else ``series``."""

    query: Query
    series: Sequence[Series] = ()
    values: Sequence[str] = ()

    @property
    def empty(self) -> bool:
        return not self.series and not self.values


def ask(
    prometheus: Prometheus, dashboard: Json, span: Span, chosen: Mapping[str, Value]
) -> Iterator[Answer]:
    """Ask every query of a dashboard; what ``chosen`` lacks stands as when it is opened.

    Raises:
        ServerError: Prometheus refused a query or does not answer.
    """
    every = {**choices(dashboard), **chosen}
    for query in queries(dashboard):
        expr = interpolate(query.expr, every, span)
        if query.kind == "values":
            values = prometheus.label_values(query.label, expr, span.start_s, span.end_s)
            yield Answer(query, values=values)
        elif query.kind == "instant":
            yield Answer(query, prometheus.at(expr, span.end_s))
        else:
            series = prometheus.over(expr, span.start_s, span.end_s, span.step_s)
            yield Answer(query, series)
