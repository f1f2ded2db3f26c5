"""A sweep of three backends as a person runs it, watched by a real Prometheus from the outside."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from benchmarks.observe_demo import DASHBOARDS, Seen, answers, sweep_under, watching
from loadtest.histogram import merge
from loadtest.observing.ask import Prometheus
from loadtest.observing.prometheus import watched
from loadtest.results import Summary
from loadtest.targets import FOLDER_VARIABLE
from serving.metrics.buckets import CLIENT_NS
from serving.models.repository import Model

BACKENDS = ("triton", "onnxruntime", "fastapi")
LEVEL = 2
BUCKET_WIDTH = max(high / low for low, high in itertools.pairwise(CLIENT_NS))


@dataclass(frozen=True)
class Watched:
    """A finished sweep, and the Prometheus that saw it."""

    seen: Seen
    prometheus: Prometheus

    @property
    def summary(self) -> Summary:
        return self.seen.run.read_summary()

    def last(self, expr: str) -> float:
        (series,) = self.prometheus.at(expr, self.seen.end_s)
        return series.last


@pytest.fixture(scope="module")
def sweep(tiny: Model, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    folder = tmp_path_factory.mktemp("watched")
    targets = folder / "targets"
    before, os.environ[FOLDER_VARIABLE] = os.environ[FOLDER_VARIABLE], str(targets)
    how = watching(folder / "prometheus")
    try:
        with watched(how):
            arguments = ["--model", "tiny", "--repository", str(tiny.root), "--slo", "20ms"]
            arguments += ["--backends", ",".join(BACKENDS), "--repeats", "1"]
            arguments += ["--concurrency", str(LEVEL), "--duration", "4"]
            # 8: on a busy machine no window may be VALID; it was scraped all the same.
            seen = sweep_under(folder / 'the-"run"', targets, arguments, accepted=(0, 8))
            yield Watched(seen, Prometheus(how.url))
    finally:
        os.environ[FOLDER_VARIABLE] = before


def test_three_backends_end_with_an_answer_and_a_page(sweep: Watched) -> None:
    found = sweep.summary
    assert found.complete
    assert {b.label for b in found.backends} == set(BACKENDS)
    for backend in found.backends:
        assert backend.parity is not None
        assert backend.parity.passed
        for point in backend.points:
            assert point.outcomes["ok"] == sum(point.outcomes.values())
    assert sweep.seen.run.report.stat().st_size < 6_000_000


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_panel_and_the_report_agree(sweep: Watched, backend: str) -> None:
    """The last scrape came after the last request, so counts are equal, and quantiles within one
    bucket of those of the histograms.
    """
    (trial,) = (t for t in sweep.seen.run.read_trials() if t.backend == backend)
    of = f'backend="{backend}",outcome="ok"'
    counted = sweep.last(f"max_over_time(infersweep_client_requests_total{{{of}}}[10m])")
    assert counted == trial.outcomes["ok"]
    histograms = sweep.seen.run.read_histograms(trial.id)
    exact = merge(w["ok"] for w in histograms.response_time if "ok" in w)
    buckets = f"max_over_time(infersweep_client_response_seconds_bucket{{{of}}}[10m])"
    for quantile in (0.5, 0.9, 0.99):
        told = sweep.last(f"histogram_quantile({quantile}, sum by (le) ({buckets}))")
        wanted = exact.get_value_at_percentile(100 * quantile) / 1e9
        assert wanted / BUCKET_WIDTH <= told <= wanted * BUCKET_WIDTH


@pytest.mark.parametrize("name", DASHBOARDS)
def test_every_panel_has_data_or_says_why_not(sweep: Watched, name: str) -> None:
    found = answers(sweep.prometheus.url, sweep.seen, name)
    assert found
    silent = [answer.query.place for answer in found if answer.empty and not answer.query.reason]
    assert not silent


def test_resources_of_both_roles_are_seen_live_and_kept(sweep: Watched) -> None:
    for backend in BACKENDS:
        (trial,) = (t for t in sweep.seen.run.read_trials() if t.backend == backend)
        assert trial.resources is not None
        for role in ("server", "generator"):
            kept = trial.resources.roles[role]
            assert kept.cpu_cores is not None
            assert kept.cpu_cores > 0
            of = f'backend="{backend}",role="{role}"'
            assert sweep.last(f"max_over_time(infersweep_process_resident_bytes{{{of}}}[10m])") > 0


def test_servers_of_ours_and_triton_tell_of_the_same_requests(sweep: Watched) -> None:
    """Each served the window, its warm-up and the parity check."""
    for backend in BACKENDS:
        (trial,) = (t for t in sweep.seen.run.read_trials() if t.backend == backend)
        name = (
            "nv_inference_request_success" if backend == "triton" else "infersweep_requests_total"
        )
        outcome = "" if backend == "triton" else ',outcome="ok"'
        of = f'{name}{{backend="{backend}"{outcome}}}'
        assert sweep.last(f"sum(max_over_time({of}[10m]))") >= trial.outcomes["ok"]


def test_targets_are_gone_with_the_run(sweep: Watched) -> None:
    assert not list((sweep.seen.run.path.parent / "targets").glob("*.json"))
    assert Path(sweep.seen.run.path / "logs" / "exporter.log").read_text() == ""
