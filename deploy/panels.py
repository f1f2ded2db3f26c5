"""What Grafana's query API is asked for a dashboard, and whether its reply is an answer. Pure.

Grafana fills in a dashboard's variables in the browser, so whoever asks its API does that himself.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from loadtest.dashboards.queries import Pattern, Query, Span, Value, choices, interpolate, queries

DATASOURCE = "prometheus"
_EVERY = Pattern(".*")
_REF = "A"


@dataclass(frozen=True)
class Question:
    """One query and the body that ``/api/ds/query`` takes for it."""

    query: Query
    body: Mapping[str, Any]


@dataclass(frozen=True)
class Reply:
    """Attributes: ``told`` is how many series came, or what is wrong."""

    kind: Literal["data", "empty", "error"]
    told: str


def questions(dashboard: Mapping[str, Any], span: Span) -> Iterator[Question]:
    """Every query of panels and annotations; a variable stands for all of its values.

    Raises:
        KeyError: a query uses a variable that the dashboard does not have.
    """
    chosen = _chosen(dashboard)
    for query in queries(dashboard):
        if query.kind != "values":
            yield Question(query, _body(query, interpolate(query.expr, chosen, span), span))


def _chosen(dashboard: Mapping[str, Any]) -> dict[str, Value]:
    names = (variable["name"] for variable in dashboard["templating"]["list"])
    return {**dict.fromkeys(names, _EVERY), **choices(dashboard), "datasource": DATASOURCE}


def _body(query: Query, expr: str, span: Span) -> dict[str, Any]:
    asked = {
        "refId": _REF,
        "datasource": {"type": "prometheus", "uid": DATASOURCE},
        "expr": expr,
        "instant": query.kind == "instant",
        "range": query.kind == "range",
        "intervalMs": round(span.step_s * 1000),
        "maxDataPoints": round((span.end_s - span.start_s) / span.step_s),
    }
    start, end = (str(round(moment * 1000)) for moment in (span.start_s, span.end_s))
    return {"queries": [asked], "from": start, "to": end}


def judge(reply: Mapping[str, Any]) -> Reply:
    """What ``/api/ds/query`` answered to a question."""
    result = reply.get("results", {}).get(_REF)
    if result is None:
        return Reply("error", str(reply.get("message", "no result")))
    if result.get("error") or result.get("status", 200) >= 300:
        return Reply("error", str(result.get("error") or f"status {result['status']}"))
    series = sum(1 for frame in result.get("frames", ()) if any(frame["data"]["values"]))
    return Reply("data", f"{series} series") if series else Reply("empty", "no series")
