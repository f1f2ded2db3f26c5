"""docs/metrics.md: every metric, recorded series and alert, made from the tables that make them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import fill

from loadtest.dashboards import triton
from loadtest.dashboards.alerts import ALERTS
from loadtest.dashboards.promql import OBJECTIVE_SHARE
from loadtest.dashboards.recording import BURNS, SCRAPES_IN_A_RATE, SERVERS
from loadtest.metrics import CLIENT_METRICS, RESOURCE_METRICS
from serving.metrics import SERVER_METRICS, Metric
from serving.metrics.buckets import BATCH_ROWS, CLIENT_NS, FIRST_NS, LAST_NS, PHASE_NS
from serving.statistics import OUTCOMES

SHOWN_NOWHERE: dict[str, str] = {}
"""Metrics that no dashboard shows, and why."""

_WIDTH = 100


def _text(*sentences: str) -> str:
    return fill(" ".join(sentences), _WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


_INTRODUCTION = "# Metrics\n\n" + _text(
    "Made by `python -m loadtest.dashboards` from `serving/metrics/table.py` and",
    "`loadtest/metrics.py`; the dashboards and rules below `grafana/` are made from the same",
    "tables. Counters and histograms grow from the start of the process that publishes them. A",
    "histogram has `_bucket` (label `le`), `_sum` and `_count`.",
)


def reference() -> str:
    parts = (
        _INTRODUCTION,
        _metrics(
            "Servers",
            "Published by the server at `/metrics`. Its target adds `run`, `backend` and "
            '`job="server"`.',
            SERVER_METRICS,
        ),
        _metrics(
            "Load generator",
            'Published beside the generator, `job="generator"`. Requests count only where they '
            "were due in a measured window.",
            CLIENT_METRICS,
        ),
        _metrics("Resources", "Published with the generator's.", RESOURCE_METRICS),
        _buckets(),
        _recorded(),
        _triton(),
        _alerts(),
        _nowhere(),
    )
    return "\n".join(part for part in parts if part)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def _code(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words) or "none"


def _metrics(title: str, text: str, metrics: Sequence[Metric]) -> str:
    rows = (
        (
            f"`{metric.sample}`",
            metric.kind,
            metric.unit,
            _code(metric.labels),
            ", ".join(metric.by),
            metric.help,
        )
        for metric in metrics
    )
    head = ("metric", "kind", "unit", "labels", "who has it", "meaning")
    return f"## {title}\n\n{_text(text)}\n{_table(head, rows)}"


def _buckets() -> str:
    rows = (
        (
            name,
            str(len(bounds)),
            f"{per_decade} per decade",
            f"{10 ** (1 / per_decade) - 1:.1%}",
        )
        for name, bounds, per_decade in (
            ("load generator", CLIENT_NS, 25),
            ("servers", PHASE_NS, 12),
        )
    )
    bounds = _text(
        f"Times have bounds from {FIRST_NS / 1e3:g} µs to {LAST_NS / 1e9:g} s, evenly spaced on a",
        "logarithmic axis, and the objective among them, so that what met it is counted exactly. A",
        "percentile is read from between two bounds; the report has it exactly.",
    )
    beyond = _text(
        "What is faster than the first bound or slower than the last is known as such only: the",
        'dashboards then say "at most" or "above". Batches have bounds at',
        f"{', '.join(map(str, BATCH_ROWS))} rows.",
    )
    head = ("histograms of", "bounds", "spacing", "largest error of a percentile")
    return f"## Buckets\n\n{bounds}\n{_table(head, rows)}\n{beyond}"


def _recorded() -> str:
    rows = (
        (f"`{series.name}`", series.unit, _code(series.labels), series.meaning)
        for series in (*SERVERS, *BURNS)
    )
    text = _text(
        f"`grafana/rules/recording.yml`. Rates look back over {SCRAPES_IN_A_RATE} scrapes, so the",
        "rules are rendered for a scrape interval: the file is for the 5 s of the compose stack,",
        "and `recording_rules()` of `loadtest/dashboards/rules.py` makes those of another.",
    )
    head = ("series", "unit", "labels", "meaning")
    return f"## Recorded series\n\n{text}\n{_table(head, rows)}"


def _triton() -> str:
    mapped = ((f"`{series.name}`", _code(series.triton)) for series in SERVERS if series.triton)
    reasons = ((f"`{reason}`", f"`{outcome}`") for reason, outcome in triton.REASONS.items())
    lacking = ((f"`{sample}`", why) for sample, why in triton.LACKS.items())
    mapping = _text(
        "Triton publishes metrics of its own. The recorded series above hold them and ours with",
        "one meaning; its microseconds become seconds.",
    )
    failures = _text(
        "`nv_inference_request_failure` has a reason, which becomes one of our outcomes",
        f"({_code(OUTCOMES)}). A reason that is not listed keeps its name.",
    )
    return (
        f"## Triton\n\n{mapping}\n{_table(('series', 'made from'), mapped)}"
        f"\n{failures}\n{_table(('reason', 'outcome'), reasons)}"
        f"\nWhat Triton 2.51 does not have:\n\n{_table(('ours', 'why'), lacking)}"
    )


def _alerts() -> str:
    rows = ((f"`{alert.name}`", alert.severity, alert.hold, alert.meaning) for alert in ALERTS)
    text = _text(
        f"`grafana/rules/alerts.yml`. {OBJECTIVE_SHARE:.0%} of the requests must meet the",
        "objective; without one there are no burn rates. Source of the burn rates: Google, *The",
        "Site Reliability Workbook*, chapter",
        "[Alerting on SLOs](https://sre.google/workbook/alerting-on-slos/).",
        "The pair `Bench` is for runs of minutes.",
    )
    return f"## Alerts\n\n{text}\n{_table(('alert', 'severity', 'for', 'meaning'), rows)}"


def _nowhere() -> str:
    if not SHOWN_NOWHERE:
        return ""
    rows = ((f"`{name}`", why) for name, why in SHOWN_NOWHERE.items())
    return f"## Shown on no dashboard\n\n{_table(('metric', 'why'), rows)}"
