"""Dashboards as they are made: whole, known to Grafana's types, and within the rules of lint."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loadtest.dashboards.dashboard import COLUMNS
from loadtest.dashboards.files import DASHBOARDS, files
from loadtest.dashboards.promql import ANSWERED_OR_GIVEN_UP
from loadtest.dashboards.queries import Pattern, Span, choices, interpolate, queries
from loadtest.dashboards.recording import RECORDED, SERVERS
from loadtest.dashboards.reference import SHOWN_NOWHERE
from loadtest.dashboards.sweep import SWEEP
from loadtest.metrics import TABLE
from loadtest.results import IN_PERCENTILES
from serving.metrics.buckets import CLIENT_NS, FIRST_NS, LAST_NS, PHASE_NS
from tests.fixtures.lint import faults, used
from tests.fixtures.typed_dashboard import typed_faults

ROOT = Path(__file__).parents[2]
Json = dict[str, Any]
MADE = [dashboard.to_json() for dashboard in DASHBOARDS]
NAMES = [dashboard.name for dashboard in DASHBOARDS]


@pytest.mark.parametrize("name", sorted(files()))
def test_a_file_that_is_made_is_not_stale(name: str) -> None:
    written = (ROOT / name).read_text(encoding="utf-8")
    assert written == files()[name], "run: python -m loadtest.dashboards"


@pytest.mark.parametrize("dashboard", MADE, ids=NAMES)
def test_grafanas_own_types_know_every_field(dashboard: Json) -> None:
    assert typed_faults(dashboard) == []


@pytest.mark.parametrize("dashboard", MADE, ids=NAMES)
def test_the_rules_of_lint_are_kept(dashboard: Json) -> None:
    assert faults(dashboard) == []


def test_uids_are_fixed() -> None:
    expected = {f"infersweep-{name}" for name in ("sweep", "server", "resources", "generator")}
    assert {dashboard["uid"] for dashboard in MADE} == expected
    assert len(MADE) == len(expected)


def test_an_id_stays_when_a_panel_before_it_goes() -> None:
    first, *others = SWEEP.sections
    fewer = replace(SWEEP, sections=(replace(first, panels=first.panels[1:]), *others))
    before = {panel["title"]: panel["id"] for panel in SWEEP.to_json()["panels"]}
    after = {panel["title"]: panel["id"] for panel in fewer.to_json()["panels"]}
    assert set(before) - set(after) == {first.panels[0].title}
    assert all(before[title] == number for title, number in after.items())


def test_every_metric_is_on_a_dashboard_or_is_said_not_to_be() -> None:
    shown = {name for made in MADE for query in queries(made) for name in used(query.expr)}
    for series in RECORDED:
        if series.name in shown:
            shown = shown | set(used(series.query("20s")))
    bases = {re.sub("_(bucket|sum|count|total)$", "", name) for name in shown} | shown
    assert {metric.name for metric in TABLE} - bases == set(SHOWN_NOWHERE)


def test_every_series_that_is_recorded_of_servers_is_on_a_dashboard() -> None:
    shown = {name for made in MADE for query in queries(made) for name in used(query.expr)}
    assert {series.name for series in SERVERS} <= shown


def test_percentiles_are_of_what_the_report_takes() -> None:
    taken = re.findall(r"\w+", ANSWERED_OR_GIVEN_UP.partition("~")[2])
    assert set(taken) == set(IN_PERCENTILES)


def test_what_lies_beyond_the_buckets_never_reads_as_a_number() -> None:
    assert CLIENT_NS[0] == PHASE_NS[0] == FIRST_NS
    assert CLIENT_NS[-1] == PHASE_NS[-1] == LAST_NS
    panel = next(p for p in SWEEP.to_json()["panels"] if p["title"] == "Response time p99 there")
    mapped = [mapping["options"] for mapping in panel["fieldConfig"]["defaults"]["mappings"]]
    texts = {(m["from"], m["to"]): m["result"]["text"] for m in mapped}
    assert texts == {(60.0, None): "above 60 s", (None, 0.0001): "at most 100 µs"}


def _panel(dashboard: Json, kind: str = "timeseries") -> Json:
    return next(panel for panel in dashboard["panels"] if panel["type"] == kind)


def _query(dashboard: Json, expr: str) -> None:
    _panel(dashboard)["targets"][0]["expr"] = expr


def _set(expr: str) -> Callable[[Json], None]:
    return lambda dashboard: _query(dashboard, expr)


BUCKETS = "sum by (le) (rate(infersweep_client_response_seconds_bucket[$__rate_interval]))"
P99 = f"histogram_quantile(0.99, {BUCKETS})"


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda d: d["panels"][1].update(id=d["panels"][2]["id"]), "stands 2 times"),
        (lambda d: d["panels"][2]["gridPos"].update(x=1), "lies on"),
        (lambda d: d["panels"][1]["gridPos"].update(x=COLUMNS - 1), "wider than the grid"),
        (lambda d: _panel(d)["fieldConfig"]["defaults"].update(unit="sec"), "unit 'sec'"),
        (lambda d: _panel(d).update(description=""), "no description"),
        (lambda d: _panel(d)["fieldConfig"]["defaults"].update(noValue=""), "nothing is said"),
        (lambda d: _panel(d)["targets"][0].update(legendFormat=""), "no legend"),
        (lambda d: _panel(d)["options"]["legend"].update(showLegend=False), "no legend"),
        (lambda d: _panel(d)["targets"][0].update(datasource={"uid": "x"}), "another data source"),
        (lambda d: d["templating"]["list"].pop(0), "no variable for the data source"),
        (lambda d: d["templating"]["list"].pop(1), "$run is no variable"),
        (_set('infersweep_client_phase{run="$run"}'), "takes no name with quotes"),
        (_set("infersweep_client_phase{run=~`${run}`}"), "not escaped"),
        (_set("sum (rate(infersweep_client_due_total[5m]))"), "without $__rate_interval"),
        (_set("increase(infersweep_client_due_total[1h])"), "without $__range"),
        (_set("irate(infersweep_client_due_total[$__range])"), "irate"),
        (_set("sum (infersweep_client_due_total)"), "read as it stands"),
        (_set(f"avg({P99})"), "avg over percentiles"),
        (_set(f"avg_over_time({P99}[$__range:])"), "avg_over_time over percentiles"),
        (_set(P99.replace("sum by (le) ", "")), "not of summed buckets"),
        (_set(P99.replace("(le)", "(backend)")), "not of summed buckets"),
        (lambda d: _panel(d)["options"]["legend"].update(calcs=["mean"]), "put together as"),
        (lambda d: _panel(d)["fieldConfig"]["defaults"].update(mappings=[]), "the last bound"),
        (_set("infersweep_client_phases"), "is no series"),
        (_set("sum(up) + nv_inference_requests"), "is no series"),
        (_set('infersweep_client_phase{role="x"}'), "has no label role"),
        (_set("sum by (version) (infersweep_client_phase)"), "has the label version"),
    ],
)
def test_lint_finds(spoil: Callable[[Json], object], told: str) -> None:
    dashboard = deepcopy(MADE[0])
    spoil(dashboard)
    assert any(told in fault for fault in faults(dashboard)), faults(dashboard)


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda d: d.update(titel="x"), ".titel is not known"),
        (lambda d: _panel(d).update(repeatt="x"), ".repeatt is not known"),
        (lambda d: _panel(d)["options"]["legend"].update(shown=True), ".shown is not known"),
        (lambda d: _panel(d)["targets"][0].update(query="x"), ".query is not known"),
        (lambda d: _panel(d)["fieldConfig"]["defaults"]["custom"].update(w=1), ".w is not known"),
        (lambda d: d["templating"]["list"][1].update(all=True), ".all is not known"),
        (lambda d: d["annotations"]["list"][0].update(q="x"), ".q is not known"),
        (lambda d: d["templating"]["list"][1].update(sort=99), "sort"),
        (lambda d: _panel(d)["options"]["legend"].update(placement="left"), "placement"),
        (lambda d: _panel(d)["options"]["tooltip"].update(mode="some"), "mode"),
        (lambda d: _panel(d)["gridPos"].update(w="wide"), "valid integer"),
        (lambda d: _panel(d, "stat")["options"].update(colorMode="bright"), "color_mode"),
        (lambda d: d.update(title=["x"]), "title"),
    ],
)
def test_the_types_find(spoil: Callable[[Json], object], told: str) -> None:
    dashboard = deepcopy(MADE[0])
    spoil(dashboard)
    found = typed_faults(dashboard)
    assert any(told in fault for fault in found), found


SPAN = Span(start_s=0, end_s=900, scrape_interval_s=5, step_s=5)


@pytest.mark.parametrize(
    ("value", "put"),
    [
        ("plain-run_1", "plain-run_1"),
        ("a.b", r"a\.b"),
        ('say "x"', 'say "x"'),
        ("c:\\d", r"c:\\d"),
        ("two\nlines", "two\nlines"),
        ("(a|b)+$^*?[c]{2}/", r"\(a\|b\)\+\$\^\*\?\[c\]\{2\}\/"),
        (["a.b", "c"], r"(a\.b|c)"),
        (["a.b"], r"a\.b"),
        (Pattern(".*"), ".*"),
    ],
)
def test_a_value_is_escaped_as_grafana_does(value: str | list[str], put: str) -> None:
    assert interpolate("x{run=~`${run:regex}`}", {"run": value}, SPAN) == f"x{{run=~`{put}`}}"


@pytest.mark.parametrize(
    ("scrape_s", "step_s", "told"), [(5, 5, "20000ms"), (1, 1, "4000ms"), (1, 60, "61000ms")]
)
def test_the_rate_interval_is_four_scrapes_or_a_step_and_a_scrape(
    scrape_s: float, step_s: float, told: str
) -> None:
    span = Span(0, 900, scrape_s, step_s)
    text = interpolate("rate(x[$__rate_interval])[$__range:$__interval]", {}, span)
    assert text == f"rate(x[{told}])[900s:{step_s * 1000}ms]"


def test_a_variable_without_a_value_is_an_error() -> None:
    with pytest.raises(KeyError):
        interpolate("x{a=~`${a:regex}`}", {}, SPAN)


def test_every_query_tells_its_place_and_every_target_is_one() -> None:
    for made in MADE:
        found = list(queries(made))
        panels = [query for query in found if query.panel_id is not None]
        assert len(panels) == sum(len(panel.get("targets", [])) for panel in made["panels"])
        assert len({query.place for query in found}) == len(found)
        assert all(query.place.startswith(made["title"]) for query in found)


def test_untouched_a_dashboard_shows_every_backend() -> None:
    assert choices(MADE[0]) == {"backend": ".*", "model": ".*", "quantile": "0.99"}


def test_dashboards_hold_no_number_that_json_does_not_know() -> None:
    for made in MADE:
        json.dumps(made, allow_nan=False)
