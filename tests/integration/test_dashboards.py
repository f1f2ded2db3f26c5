"""Every query of every dashboard against a real Prometheus that holds a run of known truth."""

from __future__ import annotations

import json
import math
import re
import subprocess
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from loadtest.dashboards.files import DASHBOARDS
from loadtest.dashboards.promql import STEP
from loadtest.dashboards.queries import Answer, Span, ask, choices, interpolate, queries
from loadtest.dashboards.recording import SERVERS, rate_window
from loadtest.dashboards.rules import rules_for
from loadtest.dashboards.sweep import SWEEP
from loadtest.observing.ask import Prometheus, Series
from loadtest.observing.prometheus import Watching, watched
from loadtest.targets import FOLDER_VARIABLE
from serving.errors import ServerError
from serving.metrics.buckets import CLIENT_NS
from serving.process import free_port, wait_until
from tests.fixtures import observed

SPAN = Span(observed.START_S, observed.END_S, observed.SCRAPE_S, observed.SCRAPE_S)
BUCKET_ERROR = 10 ** (1 / 25) - 1
"""Of a percentile that is read from 25 buckets per decade."""

PUBLISHED = {
    "server": "infersweep_processes 1\n",
    "generator": 'infersweep_client_level{run="its own",backend="its own"} 8\n',
}


class _Target(BaseHTTPRequestHandler):
    """Publishes what the path names."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(PUBLISHED[self.path.removeprefix("/")].encode())

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


def _announce(folder: Path, port: int) -> None:
    """Both at one address; a file says which is which, and what they are of."""
    for job in PUBLISHED:
        labels = {"job": job, "run": "announced", "backend": "b", "__metrics_path__": f"/{job}"}
        entry = {"targets": [f"127.0.0.1:{port}"], "labels": labels}
        (folder / f"{job}.json").write_text(json.dumps([entry]), encoding="utf-8")


@pytest.fixture(scope="module")
def prometheus(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """One Prometheus with the run of the fixture and two targets that it scrapes."""
    folder = tmp_path_factory.mktemp("prometheus")
    with (folder / "run.om").open("w", encoding="utf-8") as out:
        observed.write(out)
    load = ("promtool", "tsdb", "create-blocks-from", "openmetrics", str(folder / "run.om"))
    subprocess.run((*load, str(folder / "tsdb")), check=True, capture_output=True)
    targets = folder / "targets"
    targets.mkdir()
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Target)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    _announce(targets, server.server_port)
    watching = Watching(folder, rules_for(1.0), free_port(), scrape_interval_s=1.0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(targets))
        with watched(watching):
            yield Prometheus(watching.url)
    server.shutdown()


@pytest.fixture(scope="module")
def answers(prometheus: Prometheus) -> list[Answer]:
    """To every query of every dashboard, of the run with everything in it."""
    chosen = {"run": observed.RUN}
    made = [dashboard.to_json() for dashboard in DASHBOARDS]
    return [answer for one in made for answer in ask(prometheus, one, SPAN, chosen)]


def test_every_query_finds_something(answers: list[Answer]) -> None:
    expected = [query for dashboard in DASHBOARDS for query in queries(dashboard.to_json())]
    assert [answer.query for answer in answers] == expected
    assert [answer.query.place for answer in answers if answer.empty] == []


def test_no_answer_is_infinite_or_no_number(answers: list[Answer]) -> None:
    for answer in answers:
        values = [value for series in answer.series for _, value in series.points]
        assert all(map(math.isfinite, values)), answer.query.place


def test_what_a_legend_names_is_a_label_of_the_answer(answers: list[Answer]) -> None:
    for answer in answers:
        named = set(re.findall(r"\{\{(\w+)\}\}", answer.query.legend))
        for series in answer.series:
            missing = named - set(series.labels) - {"backend"}
            assert not missing, (answer.query.place, missing)


def _of(answers: list[Answer], title: str, letter: str = "A") -> dict[str, Series]:
    """The series of one query of a panel, by backend."""
    place = f"{SWEEP.title}, {title}, {letter}"
    (found,) = [answer for answer in answers if answer.query.place == place]
    return {series.labels["backend"]: series for series in found.series}


def _inside(series: Series, backend: str, index: int) -> list[float]:
    """Values whose rate saw nothing but one measured window."""
    start, end = observed.window_of(backend, index)
    return [v for at, v in series.points if start + SPAN.rate_interval_s <= at <= end]


@pytest.mark.parametrize(
    ("letter", "q"), [("A", 0.5), ("B", 0.9), ("C", 0.99), ("D", 0.999)], ids=str
)
def test_percentiles_are_the_known_ones(answers: list[Answer], letter: str, q: float) -> None:
    for backend, series in _of(answers, "Response time, p50 to p99.9", letter).items():
        # The last level has waits that were given up, which are not exponential.
        for index, step in enumerate(observed.STEPS[backend][:2]):
            values = _inside(series, backend, index)
            assert len(values) > 3
            for value in values:
                assert value == pytest.approx(step.quantile_s(q), rel=BUCKET_ERROR)


def test_waits_that_were_given_up_are_in_the_percentiles(answers: list[Answer]) -> None:
    series = _of(answers, "Response time, p50 to p99.9", "C")["onnxruntime"]
    step = observed.STEPS["onnxruntime"][2]
    assert step.timeouts > 0.01
    assert step.quantile_s(0.99) < 0.5
    for value in _inside(series, "onnxruntime", 2):
        assert value == pytest.approx(1.0, rel=BUCKET_ERROR)


def test_the_verdict_is_the_known_one(answers: list[Answer]) -> None:
    most = _of(answers, "Most throughput within the objective")
    there = _of(answers, "Response time p99 there")
    assert set(most) == set(there) == set(observed.BACKENDS)
    for backend in observed.BACKENDS:
        best = observed.STEPS[backend][observed.BEST]
        beyond = observed.STEPS[backend][observed.BEST + 1]
        assert best.within > 0.99 > beyond.within
        assert beyond.rate_rps * beyond.within > best.rate_rps * best.within
        assert most[backend].last == pytest.approx(best.rate_rps * best.within, rel=1e-3)
        p99 = best.quantile_s(0.99)
        assert there[backend].last == pytest.approx(p99, rel=BUCKET_ERROR)


def test_errors_are_the_known_share(answers: list[Answer]) -> None:
    for backend, series in _of(answers, "Errors").items():
        steps = observed.STEPS[backend]
        failed = sum(step.rate_rps * step.timeouts for step in steps)
        share = failed / sum(step.rate_rps for step in steps)
        assert series.last == pytest.approx(share, rel=1e-6)


def test_offered_and_achieved_are_the_known_rates(answers: list[Answer]) -> None:
    offered = _of(answers, "Offered and achieved rate", "A")
    achieved = _of(answers, "Offered and achieved rate", "B")
    for backend in observed.BACKENDS:
        for index, step in enumerate(observed.STEPS[backend]):
            assert _inside(offered[backend], backend, index)[0] == pytest.approx(step.rate_rps)
            right = step.rate_rps * (1 - step.timeouts)
            assert _inside(achieved[backend], backend, index)[0] == pytest.approx(right)


def test_every_level_of_every_backend_is_marked(answers: list[Answer]) -> None:
    (found,) = [answer for answer in answers if "annotation" in answer.query.place]
    marked = {(series.labels["backend"], series.labels["level"]) for series in found.series}
    assert marked == {(b, str(level)) for b in observed.BACKENDS for level in observed.LEVELS}


def test_recording_rules_come_to_what_the_fixture_holds(prometheus: Prometheus) -> None:
    """So the panels on recorded series, which the fixture has, show what the rules would make."""
    window = rate_window(observed.SCRAPE_S)
    for number, backend in enumerate(observed.BACKENDS):
        middle_s = observed.START_S + (number + 0.5) * observed.VISIT_S
        expected = {}
        for name, labels, value in observed.recorded(backend):
            expected[name, tuple(sorted(labels.items()))] = value
        found = {}
        for rule in SERVERS:
            for series in prometheus.at(rule.query(window), middle_s):
                labels = {k: v for k, v in series.labels.items() if k != "__name__"}
                # A gauge of the visit before is still seen for five minutes.
                if labels["backend"] == backend:
                    found[rule.name, tuple(sorted(labels.items()))] = series.last
        assert found.keys() == expected.keys()
        assert found == pytest.approx(expected, rel=1e-6)


def _sweep_of(prometheus: Prometheus, run: str) -> dict[str, Answer]:
    asked = ask(prometheus, SWEEP.to_json(), SPAN, {"run": run})
    return {answer.query.place.removeprefix(f"{SWEEP.title}, "): answer for answer in asked}


def test_an_awkward_name_chooses_its_own_run_alone(prometheus: Prometheus) -> None:
    query = "infersweep_client_phase{run=~`${run:regex}`}"
    for run in (observed.ODD_RUN, observed.DECOY_RUN, observed.RUN):
        found = prometheus.at(interpolate(query, {"run": run}, SPAN), observed.END_S)
        assert {series.labels["run"] for series in found} == {run}
    several = [observed.ODD_RUN, observed.RUN]
    found = prometheus.at(interpolate(query, {"run": several}, SPAN), observed.END_S)
    assert {series.labels["run"] for series in found} == set(several)
    # Not escaped, the odd name would have chosen another run.
    assert re.fullmatch(observed.ODD_RUN.partition("|")[0], observed.DECOY_RUN)


def test_without_an_objective_the_panels_say_so(prometheus: Prometheus) -> None:
    found = _sweep_of(prometheus, observed.ODD_RUN)
    silent = {place: answer.query.reason for place, answer in found.items() if answer.empty}
    assert set(silent) == {
        "Response time, chosen percentile, B",
        "Most throughput within the objective, A",
        "Response time p99 there, A",
        "Objective, A",
        "Goodput, A",
    }
    assert all("no objective was stated" in str(reason) for reason in silent.values())


def test_a_percentile_beyond_the_buckets_is_said_to_be_above_them(prometheus: Prometheus) -> None:
    panel = next(p for p in SWEEP.to_json()["panels"] if "chosen percentile" in p["title"])
    found = _sweep_of(prometheus, observed.ODD_RUN)[f"{panel['title']}, A"]
    (series,) = found.series
    shown = {_shown(value, panel) for _, value in series.points}
    assert CLIENT_NS[-1] / 1e9 < observed.BEYOND_S
    assert shown == {"above 60 s"}


def _shown(value: float, panel: Any) -> str:
    """As Grafana's range mappings do: both ends belong to the range."""
    for mapping in panel["fieldConfig"]["defaults"]["mappings"]:
        low, high = mapping["options"]["from"], mapping["options"]["to"]
        if (low is None or value >= low) and (high is None or value <= high):
            return str(mapping["options"]["result"]["text"])
    return f"{value:g}"


def _most_throughput(prometheus: Prometheus, span: Span) -> list[Series]:
    (query,) = [
        query
        for query in queries(SWEEP.to_json())
        if "Most throughput within the objective" in query.place
    ]
    chosen = {**choices(SWEEP.to_json()), "run": observed.RUN}
    return prometheus.at(interpolate(query.expr, chosen, span), span.end_s)


def test_an_objective_that_was_never_met_is_zero_and_not_silent(prometheus: Prometheus) -> None:
    """At the last level alone."""
    start, end = observed.window_of("onnxruntime", observed.BEST + 1)
    within = (start + SPAN.rate_interval_s, end - observed.SCRAPE_S)
    span = Span(*within, observed.SCRAPE_S, observed.SCRAPE_S)
    (series,) = _most_throughput(prometheus, span)
    assert series.labels == {"backend": "onnxruntime"}
    assert series.last == 0


def test_windows_too_short_for_the_scrapes_get_no_verdict(prometheus: Prometheus) -> None:
    """Neither a rate that also saw the pauses between them, nor zero."""
    rarely = Span(observed.START_S, observed.END_S, 3 * observed.SCRAPE_S, observed.SCRAPE_S)
    assert rarely.rate_interval_s > observed.WINDOW_S
    assert _most_throughput(prometheus, rarely) == []


def test_steps_are_marked_however_far_one_looks(prometheus: Prometheus) -> None:
    """Grafana asks for a hundred points, so a step may be longer than a level."""
    (query,) = [query for query in queries(SWEEP.to_json()) if "annotation" in query.place]
    assert STEP in query.expr
    chosen = {**choices(SWEEP.to_json()), "run": observed.RUN}
    wide = Span(observed.START_S, observed.END_S, observed.SCRAPE_S, 40)
    expr = interpolate(query.expr, chosen, wide)
    found = prometheus.over(expr, wide.start_s, wide.end_s, wide.step_s)
    levels = {series.labels["level"] for series in found}
    assert levels == {str(level) for level in observed.LEVELS}


def test_a_query_that_is_none_is_told_with_prometheus_own_words(prometheus: Prometheus) -> None:
    with pytest.raises(ServerError, match="parse error"):
        prometheus.at("sum(", observed.END_S)


def test_a_prometheus_that_is_not_there_is_said_not_to_answer() -> None:
    with pytest.raises(ServerError, match="does not answer"):
        Prometheus(f"http://127.0.0.1:{free_port()}").at("up", observed.END_S)


def _live(prometheus: Prometheus, expr: str) -> list[Series]:
    found: list[Series] = []

    def there() -> bool:
        found[:] = prometheus.over(expr, *_now())
        return bool(found)

    wait_until(there, deadline_s=15, process=None, what=expr, poll_s=0.1)
    return found


def _now() -> tuple[float, float, float]:
    now = time.time()
    return now - 10, now, 1.0


def test_a_target_has_the_labels_of_its_file_and_a_generator_its_own(
    prometheus: Prometheus,
) -> None:
    (server,) = _live(prometheus, "infersweep_processes{run='announced'}")
    assert server.labels["job"] == "server"
    assert server.labels["backend"] == "b"
    (generator,) = _live(prometheus, "infersweep_client_level{job='generator'}")
    assert generator.labels["run"] == generator.labels["backend"] == "its own"
    ups = _live(prometheus, "count by (job) (up)")
    assert {series.labels["job"]: series.last for series in ups} == {"server": 1, "generator": 1}
