"""Where the mean response time went: parts that add up, and words where they cannot be told."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from loadtest import calibration
from loadtest.analysis import point_of
from loadtest.breakdown import FRONT, PARTS, TOLERATED_SHARE, breakdown_of, mean_ns
from loadtest.counters import METRICS, STATISTICS, UntoldError, read_metrics, read_statistics
from loadtest.explained import Breakdown, PhaseTotal, ServerTimings
from loadtest.histogram import LOWEST_NS, Tally, encode
from loadtest.prepare import encode_ns
from loadtest.recorder import Recorder
from loadtest.report import breakdown as section
from loadtest.report.templates import template
from loadtest.results import Histograms, Trial
from loadtest.timings import Meter, TimingsSource, source_of
from serving.backends.base import Launch
from serving.backends.fastapi.metering import Exchange, Inference
from serving.backends.fastapi.metrics import Metrics
from serving.batching.instances import BatchResult
from serving.batching.queue import Pending
from serving.errors import UsageError
from serving.models.repository import Model
from serving.parity import reference_for
from serving.statistics import VersionStatistics
from tests import sample_report
from tests import sample_trials as made

FLOOR_MS = 0.25
WITHOUT_FRONT = tuple(part for part in PARTS if part != FRONT)
PHASES_MS = {
    "total": 4.0,
    "queue": 2.0,
    "compute_input": 0.125,
    "compute": 1.5,
    "compute_output": 0.25,
}
ROUNDING = 1e-3
"""HDR histograms of three digits."""


def timings(count: int, phases_ms: dict[str, float], **changes: object) -> ServerTimings:
    values = {
        "told_by": STATISTICS,
        "phases": {
            name: PhaseTotal(count=count, ns=round(ms * count * made.MS))
            for name, ms in phases_ms.items()
        },
        "rows": count,
        "executions": count,
    }
    return ServerTimings.model_validate({**values, **changes})


def window(
    latencies_ns: Sequence[int], *, late_ns: int = 0, repeat: int = 1, **changes: object
) -> tuple[Trial, Histograms]:
    """A trial whose requests left late, with a floor and the server's timings unless changed."""
    count = len(latencies_ns)
    recorder = Recorder(0, 2 * made.SECOND)
    recorder.add(made.requests(made.spread(count), latencies_ns, late_ns=late_ns))
    measured = recorder.finish()
    known = {"server_timings": timings(count, PHASES_MS), "floor_ms": FLOOR_MS}
    trial, _ = made.trial("triton", 4, repeat, latencies_ns, **{**known, **changes})
    histograms = Histograms(
        trial=trial.id,
        response_time=measured.response_time,
        service_time=measured.service_time,
        lateness=measured.lateness,
        first_byte=measured.first_byte,
    )
    return trial, histograms


def divided(*windows: tuple[Trial, Histograms]) -> tuple[Breakdown, dict[str, float]]:
    found = breakdown_of(windows)
    assert found is not None
    return found, dict(found.parts)


def test_the_parts_add_up_to_the_mean_response_time() -> None:
    found, parts = divided(window([5 * made.MS, 7 * made.MS], late_ns=made.MS))
    assert found.mean_response_ms == pytest.approx(6, rel=ROUNDING)
    assert tuple(parts) == WITHOUT_FRONT
    assert sum(parts.values()) == pytest.approx(found.mean_response_ms)
    assert parts["waiting to be sent"] == pytest.approx(1, rel=6 * ROUNDING)
    assert parts["client and wire"] == FLOOR_MS
    told = [PHASES_MS[phase] for phase in ("queue", "compute_input", "compute", "compute_output")]
    assert list(parts.values())[2:6] == told
    assert parts["rest"] == pytest.approx(6 - 1 - FLOOR_MS - sum(told), rel=6 * ROUNDING)
    assert found.adds_up
    assert found.requests == 2


def test_counters_of_repeats_are_added_up_and_not_averaged() -> None:
    few = window([made.MS], server_timings=timings(1, {"total": 0.1, "compute": 0.1}))
    many = window(
        [made.MS] * 3, repeat=2, server_timings=timings(3, {"total": 0.5, "compute": 0.5})
    )
    _, parts = divided(few, many)
    assert parts["compute"] == pytest.approx((0.1 + 3 * 0.5) / 4)


def test_parts_that_exceed_the_mean_are_told_and_not_hidden() -> None:
    found, parts = divided(window([made.MS]))
    told_ms = sum(PHASES_MS.values()) - PHASES_MS["total"]
    assert parts["rest"] == parts["client and wire"] == 0
    assert not found.adds_up
    assert found.gap_share == pytest.approx(told_ms - 1, rel=2 * ROUNDING)


def test_a_floor_of_another_moment_takes_no_more_than_the_server_leaves() -> None:
    told_ms = sum(PHASES_MS.values()) - PHASES_MS["total"]
    left_ms = FLOOR_MS / 2
    found, parts = divided(window([round((told_ms + left_ms) * made.MS)]))
    assert parts["client and wire"] == pytest.approx(left_ms, rel=20 * ROUNDING)
    assert found.adds_up


@pytest.mark.parametrize(("share", "adds_up"), [(0.9, True), (1.1, False)])
def test_a_surplus_is_tolerated_up_to_its_limit(share: float, adds_up: bool) -> None:
    compute_ms = 1 + share * TOLERATED_SHARE
    phases = timings(1, {"total": compute_ms, "compute": compute_ms})
    found, _ = divided(window([made.MS], server_timings=phases, floor_ms=None))
    assert found.adds_up is adds_up


def test_a_server_that_does_not_tell_leaves_its_time_in_the_rest_with_the_reason() -> None:
    silent = {"server_timings": None, "server_timings_missing": "/stats was answered with 404"}
    found, parts = divided(window([5 * made.MS], **silent))
    assert set(parts) == {"waiting to be sent", "client and wire", "rest"}
    assert parts["rest"] == pytest.approx(5 - FLOOR_MS, rel=ROUNDING)
    assert any("/stats was answered with 404" in note for note in found.notes)
    assert found.rows_per_batch is None


def test_without_a_floor_client_and_wire_are_in_the_rest() -> None:
    found, parts = divided(window([5 * made.MS], floor_ms=None))
    assert "client and wire" not in parts
    assert sum(parts.values()) == pytest.approx(found.mean_response_ms)
    assert any("null server" in note for note in found.notes)


def test_metrics_tell_the_output_by_what_is_left_of_the_total() -> None:
    phases = timings(2, {"total": 3.0, "queue": 1.0, "compute": 1.5}, told_by=METRICS)
    found, parts = divided(window([5 * made.MS] * 2, server_timings=phases))
    assert parts["compute output"] == pytest.approx(0.5)
    assert "compute input" not in parts
    assert any("no input and output" in note for note in found.notes)


def test_a_repeat_without_timings_is_left_out_of_mean_and_parts() -> None:
    slow = window([50 * made.MS], repeat=2, server_timings=None, server_timings_missing="lost")
    found, _ = divided(window([5 * made.MS]), slow)
    assert found.mean_response_ms == pytest.approx(5, rel=ROUNDING)
    assert found.requests == 1
    assert any("Only 1 of 2" in note for note in found.notes)


def test_requests_of_others_are_noticed() -> None:
    own = {"server_timings": timings(20, PHASES_MS), "rows_per_request": 2}
    quiet, _ = divided(window([5 * made.MS] * 10, **own))
    assert not any("counted" in note for note in quiet.notes)
    loud, _ = divided(window([5 * made.MS] * 10, **{**own, "rows_per_request": 1}))
    assert any("counted 20 rows and 10 were answered" in note for note in loud.notes)


def test_rows_per_batch_come_from_the_counters() -> None:
    found, _ = divided(window([5 * made.MS], server_timings=timings(6, PHASES_MS, executions=2)))
    assert found.rows_per_batch == 3


def test_the_mean_of_a_histogram_has_no_bias() -> None:
    count = 20_000
    values = np.random.default_rng(1).integers(80_000, 240_000, count)
    tally = Tally()
    tally.add(values)
    found = mean_ns([encode(tally.histogram())])
    assert found is not None
    # Up to 1 ms a bucket holds less than LOWEST_NS; the error in it is uniform and averages out.
    assert abs(found - values.mean()) < 4 * LOWEST_NS / math.sqrt(12 * count)


def test_a_point_is_divided_by_its_valid_repeats_only() -> None:
    good = window([5 * made.MS])
    bad = window([90 * made.MS], repeat=2, verdict="INVALID", reasons=("client-bound",))
    kept = {trial.id: histograms for trial, histograms in (good, bad)}
    found = point_of([good[0], bad[0]], kept.__getitem__).breakdown
    assert found is not None
    assert found.mean_response_ms == pytest.approx(5, rel=ROUNDING)
    assert point_of([bad[0]], kept.__getitem__).breakdown is None


def test_a_trial_of_an_older_folder_is_divided_as_far_as_it_goes() -> None:
    trial, histograms = made.trial("triton", 4, 1, [made.MS])
    found = point_of([trial], lambda _: histograms).breakdown
    assert found is not None
    assert [name for name, _ in found.parts] == ["waiting to be sent", "rest"]
    assert any("none were taken" in note for note in found.notes)


def statistics_of(*batches: tuple[int, int]) -> VersionStatistics:
    """After batches of so many requests, each of which waited and was computed for so many ns."""
    told = VersionStatistics()
    for requests, ns in batches:
        waiting = [Pending({}, 1, ()) for _ in range(requests)]
        told.record(BatchResult(waiting, requests, {}, None, ns, 0, ns))
    return told


def test_the_statistics_of_our_server_are_read_for_all_versions_together() -> None:
    first, second = statistics_of((3, 1000)), statistics_of((1, 500), (1, 500))
    stats = [first.describe("tiny", 1), second.describe("tiny", 2)]
    before = read_statistics(json.dumps({"model_stats": stats[:1]}).encode())
    found = before.until(read_statistics(json.dumps({"model_stats": stats}).encode()))
    assert (found.rows, found.executions) == (2, 2)
    assert found.phases["compute"] == PhaseTotal(count=2, ns=1000)
    assert found.phases["queue"].ns == second.queue.total_ns
    assert found.phases["total"].count == 2


def inference(began_ns: int) -> Exchange:
    """Queued for 1 ms, computed for 2 ms, handed over 4 ms after its body had come."""
    told = Inference()
    told.rows, told.queued_ns = 1, began_ns + made.MS
    told.started_ns = told.queued_ns + made.MS
    told.computed_ns = told.started_ns + 2 * made.MS
    return ("POST", "/infer", 200, began_ns, told.queued_ns + 4 * made.MS, told)


def test_the_metrics_of_a_worker_are_read() -> None:
    registry = CollectorRegistry()
    worker = Metrics("tiny", 1, None, registry)
    worker.publish([inference(0)], in_flight=0, pending=0)
    before = read_metrics([generate_latest(registry).decode()], "tiny")
    worker.publish([inference(1), inference(2)], in_flight=0, pending=0)
    text = generate_latest(registry).decode()
    found = before.until(read_metrics([text], "tiny"))
    per_request = {name: total.ns / total.count for name, total in found.phases.items()}
    expected = {"queue": made.MS, "compute": 2 * made.MS, "total": 4 * made.MS}
    assert per_request == pytest.approx(expected)
    assert (found.rows, found.executions) == (2, 2)
    with pytest.raises(UntoldError, match="another"):
        read_metrics([text], "another")
    assert read_metrics([text, text], "tiny").rows == 6


def test_replicas_are_asked_for_their_metrics_since_any_one_answers_at_the_address() -> None:
    urls = ("http://host:1/metrics", "http://host:2/metrics")
    launch = Launch("triton", "http://host:8000", replica_metrics_urls=urls)
    source = source_of(launch, "tiny")
    assert source.statistics_url is None
    assert source.metrics_urls == urls


def test_tritons_metrics_are_read() -> None:
    told = {
        "nv_inference_request_success": 4,
        "nv_inference_count": 8,
        "nv_inference_exec_count": 2,
        "nv_inference_request_duration_us": 4000,
        "nv_inference_queue_duration_us": 800,
        "nv_inference_compute_input_duration_us": 40,
        "nv_inference_compute_infer_duration_us": 2000,
        "nv_inference_compute_output_duration_us": 80,
    }
    text = "".join(
        f'# TYPE {name} counter\n{name}{{model="tiny",version="1"}} {value}\n'
        for name, value in told.items()
    )
    found = read_metrics([text], "tiny")
    assert found.phases["compute"] == (4, 2_000_000)
    assert found.phases["queue"] == (4, 800_000)
    assert (found.rows, found.executions) == (8, 2)


def test_counters_that_went_back_or_stood_still_tell_nothing() -> None:
    one, two = (
        read_statistics(json.dumps({"model_stats": [told.describe("tiny", 1)]}).encode())
        for told in (statistics_of((1, 1000)), statistics_of((2, 1000)))
    )
    with pytest.raises(UntoldError, match="started again"):
        two.until(one)
    with pytest.raises(UntoldError, match="no request"):
        one.until(one)


def test_a_reply_that_is_no_statistics_is_told_as_such() -> None:
    for body in (b"<html>", b"[]", b'{"model_stats": [{}]}'):
        with pytest.raises(UntoldError, match="not those of the protocol"):
            read_statistics(body)


def test_a_server_over_grpc_only_cannot_tell() -> None:
    source = source_of(Launch("remote", "grpc://host:8001"), "tiny")
    meter = Meter(source, {}, None)
    meter.begin_under_load(0)
    assert meter.end(lambda _: None) == (None, "it is reached over gRPC only")


def test_a_server_that_is_not_there_stops_no_run() -> None:
    # Port 9 of this host is nobody's: it was the discard service's.
    source = TimingsSource(model="tiny", statistics_url="http://127.0.0.1:9/v2/models/tiny/stats")
    meter = Meter(source, {}, None)
    assert meter.missing is not None
    assert "was not answered" in meter.missing


def test_encoding_a_request_is_timed_apart(tiny: Model) -> None:
    reference = reference_for(tiny)
    assert encode_ns(tiny, reference, encoding="json", rows=8) > 0
    with pytest.raises(UsageError, match="9 rows"):
        encode_ns(tiny, reference, rows=9)


def test_a_floor_lies_beside_its_ceiling_and_older_files_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("INFERSWEEP_CACHE", str(tmp_path))
    (tmp_path / "ceilings.json").write_text('{"old": 5000.0, "failed": 0.0}')
    assert calibration.known_ceiling("old") == 5000
    assert calibration.known_floor("old") is None
    assert calibration.known_ceiling("failed") is None
    calibration.keep(**{"new": 7000.0, "new-floor-ms": 0.125})
    assert calibration.known_floor("new") == 0.125
    assert calibration.known_ceiling("old") == 5000


def test_the_page_has_a_bar_for_each_backend_and_every_number(tmp_path: Path) -> None:
    summary = sample_report.summary()
    known, _ = divided(window([9 * made.MS], encode_ns=1500.0))
    short, _ = divided(window([2 * made.MS]))
    backends = [
        backend.model_copy(
            update={
                "points": tuple(
                    point.model_copy(update={"breakdown": known if index else short})
                    for point in backend.points
                )
            }
        )
        for index, backend in enumerate(summary.backends[:2])
    ]
    told = section.section_of(summary.model_copy(update={"backends": tuple(backends)}))
    assert told is not None
    bars = json.loads(told.figure.data)["data"]
    assert [bar["name"] for bar in bars] == list(told.parts) == list(WITHOUT_FRONT)
    assert sum(bar["x"][1] for bar in bars) == pytest.approx(known.mean_response_ms)
    around = tmp_path / "around.html.j2"
    around.write_text(
        "{% macro swatch(label) %}{% endmacro %}{% include 'breakdown.html.j2' %}", "utf-8"
    )
    page = template(around).render(breakdown=told)
    assert "Encoding one request took 1.5 µs" in page
    assert page.count("Does not add up") == len(backends[0].points)
    assert section.section_of(summary) is None
