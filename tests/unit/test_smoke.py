"""The smoke check of the stack, which needs Docker, as far as it is arithmetic and judgement."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from deploy import smoke
from deploy.answers import difference, request
from deploy.panels import judge, questions
from loadtest.dashboards.queries import Span

ROOT = Path(__file__).parents[2]
DASHBOARDS = [json.loads(f.read_text()) for f in sorted(ROOT.glob("grafana/dashboards/*.json"))]
SPAN = Span(1000.0, 1900.0, 5.0, 5.0)
Json = dict[str, Any]


def answer(*values: float, name: str = "logits") -> Json:
    return {"outputs": [{"name": name, "shape": [1, len(values)], "data": list(values)}]}


def test_a_request_has_the_shape_that_the_model_asks_for() -> None:
    picture = {"name": "image", "datatype": "FP32", "shape": [-1, 3, -1, 32]}
    tokens = {"name": "ids", "datatype": "INT64", "shape": [-1, 4]}
    first, second = request({"inputs": [picture, tokens]})["inputs"]
    assert first["shape"] == [1, 3, 64, 32]
    assert len(first["data"]) == math.prod(first["shape"])
    assert len(set(first["data"])) > 100, "not all the same"
    assert (second["shape"], second["data"]) == ([1, 4], [0, 1, 0, 1])


def test_a_request_of_text_is_refused() -> None:
    with pytest.raises(ValueError, match="BYTES"):
        request({"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1]}]})


def test_answers_are_compared_as_a_share_of_the_largest_value() -> None:
    assert difference(answer(1.0, -4.0), answer(1.0, -4.0)) == 0
    assert difference(answer(1.0, -4.0), answer(1.2, -4.0)) == pytest.approx(0.2 / 4)


@pytest.mark.parametrize(
    "other",
    [answer(1.0), answer(1.0, math.nan), answer(1.0, 2.0, name="scores"), {"outputs": []}],
    ids=["shorter", "no number", "another name", "nothing"],
)
def test_an_answer_of_another_form_is_no_equal_answer(other: Json) -> None:
    assert difference(answer(1.0, 2.0), other) == math.inf


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=[d["title"] for d in DASHBOARDS])
def test_every_query_of_a_dashboard_is_asked_without_its_variables(dashboard: Json) -> None:
    asked = list(questions(dashboard, SPAN))
    targets = sum(len(panel.get("targets", ())) for panel in dashboard["panels"])
    assert len(asked) == targets + len(dashboard["annotations"]["list"])
    for question in asked:
        (query,) = question.body["queries"]
        assert "$" not in query["expr"]
        assert query["datasource"]["uid"] == "prometheus"
        assert query["instant"] != query["range"]
        assert (question.body["from"], question.body["to"]) == ("1000000", "1900000")


def frame(*columns: list[float]) -> Json:
    return {"schema": {}, "data": {"values": list(columns)}}


@pytest.mark.parametrize(
    ("reply", "kind", "told"),
    [
        ({"results": {"A": {"status": 200, "frames": [frame([1], [2])]}}}, "data", "1 series"),
        ({"results": {"A": {"status": 200, "frames": [frame([], [])]}}}, "empty", "no series"),
        ({"results": {"A": {"status": 200}}}, "empty", "no series"),
        ({"results": {"A": {"status": 400, "error": "bad_data: 1:2"}}}, "error", "bad_data: 1:2"),
        ({"results": {"A": {"status": 500}}}, "error", "status 500"),
        ({"message": "Data source not found"}, "error", "Data source not found"),
        ({"results": {}}, "error", "no result"),
    ],
)
def test_a_reply_is_judged(reply: Json, kind: str, told: str) -> None:
    judged = judge(reply)
    assert (judged.kind, judged.told) == (kind, told)


def container(service: str, state: str = "running", health: str = "", code: int = 0) -> Json:
    return {"Service": service, "State": state, "Health": health, "ExitCode": code}


def test_what_has_done_its_work_is_well_and_what_starts_is_waited_for() -> None:
    containers = [
        container("targets", "exited"),
        container("grafana", health="healthy"),
        container("triton", health="starting"),
        container("locust-worker", "created"),
    ]
    assert smoke.unready(containers) == ["triton", "locust-worker"]


@pytest.mark.parametrize(
    "failed", [container("triton", "exited", code=1), container("triton", health="unhealthy")]
)
def test_what_has_failed_is_not_waited_for(failed: Json) -> None:
    with pytest.raises(smoke.Unready, match="triton"):
        smoke.unready([container("grafana", health="starting"), failed])


def test_both_forms_in_which_compose_lists_containers_are_read() -> None:
    one, two = container("a"), container("b")
    lines = f"{json.dumps(one)}\n{json.dumps(two)}\n"
    assert smoke.parse_containers(lines) == smoke.parse_containers(json.dumps([one, two]))


def test_targets_of_the_profile_are_demanded() -> None:
    assert set(smoke.announced("gpu")) - set(smoke.announced("cpu")) == {"dcgm-exporter:9400"}


class Answers:
    """Stands for the stack's addresses: a reply for each end of a URL."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **replies: Any) -> None:
        self.replies = {name.replace("_", "/"): reply for name, reply in replies.items()}
        monkeypatch.setattr(smoke, "ask", self)

    def __call__(self, url: str, _body: Json | None = None) -> Any:
        (reply,) = (r for end, r in self.replies.items() if url.partition("?")[0].endswith(end))
        return reply


def test_a_target_that_is_down_and_one_that_is_missing_fail(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = [
        {"discoveredLabels": {"__address__": address}, "health": health, "lastError": ""}
        for address, health in (("triton:8002", "up"), ("onnxruntime:8000", "down"))
    ]
    rules = [{"name": "a", "health": "ok"}, {"name": "b", "health": "err"}]
    Answers(
        monkeypatch,
        targets={"data": {"activeTargets": known}},
        rules={"data": {"groups": [{"name": "recording", "rules": rules}]}},
    )
    failed = {line.subject: line.fault for line in smoke.prometheus("cpu")}
    assert failed == {
        "triton:8002": False,
        "onnxruntime:8000": True,
        "fastapi:8002": True,
        "recording": True,
    }


@pytest.mark.parametrize(("values", "failed"), [([1.0], False), ([], True)])
def test_a_panel_may_be_empty_and_a_dashboard_may_not(
    monkeypatch: pytest.MonkeyPatch, values: list[float], failed: bool
) -> None:
    by_uid = {d["uid"]: {"dashboard": d} for d in DASHBOARDS}
    home = by_uid["infersweep-sweep"]
    Answers(
        monkeypatch,
        search=[{"uid": uid} for uid in by_uid],
        home=home,
        query={"results": {"A": {"status": 200, "frames": [frame(values)]}}},
        **by_uid,
    )
    lines = list(smoke.grafana())
    assert {line.fault for line in lines if line.check == "query"} == {False}
    with_data = [line for line in lines if "have data" in line.told]
    assert [line.fault for line in with_data] == [failed] * len(DASHBOARDS)


def test_a_fault_shows_in_the_table_and_in_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    fine, wrong = smoke.Line("target", "a", "up"), smoke.Line("target", "b", "down", fault=True)
    assert smoke.show(iter([fine])) is False
    assert smoke.show(iter([wrong, fine])) is True
    assert [line[:6] for line in capsys.readouterr().out.splitlines()] == [
        "ok    ",
        "FAILED",
        "ok    ",
    ]


def test_without_docker_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "")
    assert smoke.main([]) == smoke.EXIT_MACHINE
    assert "docker is not on PATH" in capsys.readouterr().err
