"""Boards that generators write, and what the exporter makes of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from loadtest import metrics
from loadtest.folder import ResultsFolder
from loadtest.live import IDLE, MEASURING, Board, LoadLabels, board_path
from loadtest.observing.exporter import RunCollector
from loadtest.recorder import Recorder
from loadtest.results import OUTCOMES
from serving.metrics.buckets import CLIENT_NS
from tests.sample_trials import MS, SECOND, manifest, requests, spread, trial

SLO_NS = 7 * MS + 3


def labels_of(backend: str) -> LoadLabels:
    return LoadLabels(
        backend=backend, model="tiny", scenario="closed", slo_ns=SLO_NS, ceiling_rps=1e4
    )


@pytest.fixture
def folder(tmp_path: Path) -> ResultsFolder:
    made = ResultsFolder(tmp_path / 'a "run"\nof two lines')
    made.write_manifest(manifest())
    return made


def visit(folder: ResultsFolder, name: str, backend: str, latencies_ns: list[int]) -> Board:
    """What a generator leaves that measured one window of right answers, and one timeout."""
    labels = folder.live / f"{name}.json"
    labels.write_text(labels_of(backend).model_dump_json())
    board = Board.create(board_path(labels, 0), SLO_NS)
    board.enter(MEASURING, 4.0)
    recorder = Recorder(0, 2 * SECOND, board=board)
    recorder.add(requests(spread(len(latencies_ns)), latencies_ns, late_ns=MS))
    recorder.add(requests([0], [9 * MS], outcome="timeout"))
    recorder.add(requests([3 * SECOND], [MS]))
    board.enter(IDLE, 4.0)
    return board


def scrape(folder: ResultsFolder) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(RunCollector(folder))
    text = generate_latest(registry).decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def found(scraped: dict[tuple[str, frozenset[tuple[str, str]]], float], name: str, **labels: str):
    wanted = labels.items()
    (value,) = (v for (n, own), v in scraped.items() if n == name and wanted <= set(own))
    return value


def test_a_board_counts_what_was_due_in_the_window_and_no_more(folder: ResultsFolder) -> None:
    latencies = [2 * MS, SLO_NS, SLO_NS + 1, 80 * SECOND]
    board = visit(folder, "one", "triton", latencies)
    read = Board.read(board_path(folder.live / "one.json", 0), SLO_NS)
    expected = np.bincount(
        np.searchsorted(board.bounds_ns, latencies), minlength=len(CLIENT_NS) + 2
    )
    ok, timeout = OUTCOMES.index("ok"), OUTCOMES.index("timeout")
    assert read["response"][ok].tolist() == expected.tolist()
    assert read["response"][ok][-1] == 1
    assert read["response_ns"][ok] == sum(latencies)
    assert read["service_ns"][ok] == sum(latencies) - len(latencies) * MS
    assert (read["outcomes"][ok], read["outcomes"][timeout]) == (4, 1)
    assert read["lateness_ns"] == len(latencies) * MS
    assert (read["phase"], read["level"]) == (IDLE, 4.0)


def test_visits_of_one_backend_add_up_and_the_objective_is_counted_exactly(
    folder: ResultsFolder,
) -> None:
    visit(folder, "one", "triton", [SLO_NS, SLO_NS + 1])
    visit(folder, "two", "fastapi", [SLO_NS])
    visit(folder, "three", "triton", [SLO_NS])
    scraped = scrape(folder)
    run = folder.path.name
    of = {"backend": "triton", "run": run, "model": "tiny", "scenario": "closed"}
    assert found(scraped, "infersweep_client_requests_total", outcome="ok", **of) == 3
    assert found(scraped, "infersweep_client_requests_total", outcome="timeout", **of) == 2
    assert found(scraped, "infersweep_client_due_total", **of) == 5
    assert found(scraped, "infersweep_client_within_slo_total", **of) == 2
    bucket = {"le": repr(SLO_NS / 1e9), "outcome": "ok"}
    assert found(scraped, "infersweep_client_response_seconds_bucket", **bucket, **of) == 2
    assert found(scraped, "infersweep_client_slo_seconds", **of) == SLO_NS / 1e9
    assert found(scraped, "infersweep_client_requests_total", outcome="ok", backend="fastapi") == 1


def test_trials_are_told_by_their_verdict(folder: ResultsFolder) -> None:
    for repeat, verdict in enumerate(("VALID", "INVALID", "VALID"), 1):
        folder.append_trial(*trial("triton", 4, repeat, [MS] * 10, verdict=verdict))
    scraped = scrape(folder)
    assert found(scraped, "infersweep_client_trials_total", verdict="VALID") == 2
    assert found(scraped, "infersweep_client_trials_total", verdict="INVALID") == 1


def test_what_is_half_written_is_left_to_the_next_scrape(folder: ResultsFolder) -> None:
    visit(folder, "one", "triton", [MS])
    (folder.live / "two.json").write_text('{"backend": ')
    (folder.live / "three.json").write_text(labels_of("fastapi").model_dump_json())
    (folder.live / "three.0.board").write_bytes(b"")
    assert found(scrape(folder), "infersweep_client_requests_total", outcome="ok") == 1


def test_a_run_that_has_not_begun_has_no_load_to_tell(folder: ResultsFolder) -> None:
    assert not scrape(folder)


def test_every_row_of_the_generator_is_published(folder: ResultsFolder) -> None:
    visit(folder, "one", "triton", [MS])
    folder.append_trial(*trial("triton", 4, 1, [MS] * 10))
    names = {name for name, _ in scrape(folder)}
    for metric in metrics.CLIENT_METRICS:
        sample = f"{metric.sample}_bucket" if metric.kind == "histogram" else metric.sample
        assert sample in names
