"""The metric table, the buckets, and what a server's state looks like to Prometheus."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import Metric as Family
from prometheus_client.parser import text_string_to_metric_families

from loadtest import metrics
from serving.batching.instances import BatchResult
from serving.exposition import ServerState, Source, exposition
from serving.metrics import SERVER_METRICS
from serving.metrics.buckets import CLIENT_NS, FIRST_NS, LAST_NS, PHASE_NS, bounds_with, per_decade
from serving.statistics import OUTCOMES, Durations, VersionStatistics

MS = 1_000_000


@pytest.mark.parametrize(("bounds", "count"), [(CLIENT_NS, 25), (PHASE_NS, 12)])
def test_bounds_reach_from_first_to_last_with_so_many_in_each_decade(
    bounds: tuple[int, ...], count: int
) -> None:
    assert (bounds[0], bounds[-1]) == (FIRST_NS, LAST_NS)
    assert list(bounds) == sorted(set(bounds))
    for decade in (1, 10, 100, 1_000, 10_000):
        low = decade * FIRST_NS
        assert sum(low <= bound < 10 * low for bound in bounds) == count


@given(st.integers(1, 40), st.floats(FIRST_NS, LAST_NS))
def test_the_bucket_of_a_value_is_no_wider_than_promised(count: int, value_ns: float) -> None:
    bounds = per_decade(count)
    place = int(np.searchsorted(bounds, value_ns))
    if 0 < place < len(bounds):
        # Four digits: each bound is off by half of its last one, at most 5e-4 of itself.
        rounding = (1 + 5e-4) / (1 - 5e-4)
        assert bounds[place] / bounds[place - 1] <= 10 ** (1 / count) * rounding


def test_the_objective_is_a_bound_of_its_own_and_counted_exactly() -> None:
    slo_ns = 50 * MS + 1
    assert slo_ns not in PHASE_NS
    statistics = VersionStatistics(slo_ns)
    assert set(statistics.total.bounds_ns) == {*PHASE_NS, slo_ns}
    statistics.total.add([slo_ns - 1, slo_ns, slo_ns + 1])
    assert statistics.within_slo() == 2
    assert bounds_with(PHASE_NS, PHASE_NS[3]) == PHASE_NS


def test_without_an_objective_nothing_is_counted_by_one() -> None:
    with pytest.raises(ValueError, match="no objective"):
        VersionStatistics().within_slo()
    assert "infersweep_requests_within_slo" not in families(VersionStatistics())


@given(st.lists(st.integers(0, 2 * LAST_NS)))
def test_no_duration_is_lost_between_the_buckets(values_ns: list[int]) -> None:
    durations = Durations()
    durations.add(values_ns)
    counts = durations.bucket_counts()
    assert sum(counts) == len(values_ns) == durations.count
    assert counts[-1] == sum(value > LAST_NS for value in values_ns)


def families(statistics: VersionStatistics, model: str = "m") -> dict[str, Family]:
    """What Prometheus's own parser makes of it; families without samples are left out."""
    source = Source(model, 3, statistics, pending=4, instances=2)
    text = exposition(ServerState([source], restarts=5, threads=6)).decode()
    return {f.name: f for f in text_string_to_metric_families(text) if f.samples}


def value(found: Family, suffix: str = "", **labels: str) -> float:
    (sample,) = (
        s
        for s in found.samples
        if s.name == found.name + suffix and labels.items() <= s.labels.items()
    )
    return sample.value


def test_every_row_of_the_table_that_the_server_has_is_told() -> None:
    statistics = VersionStatistics(50 * MS)
    found = families(statistics)
    own = {m.name: m for m in SERVER_METRICS if "onnxruntime" in m.by}
    assert found.keys() == own.keys()
    for name, metric in own.items():
        kind = found[name].type
        assert kind == metric.kind
        for sample in found[name].samples:
            assert sample.labels.keys() - {"le"} == set(metric.labels)


def test_the_numbers_are_those_of_the_statistics() -> None:
    statistics = VersionStatistics(50 * MS)
    statistics.outcomes["ok"] = 7
    statistics.in_flight = 2
    statistics.total.add([MS, 60 * MS])
    found = families(statistics)
    for outcome in OUTCOMES:
        expected = 7 if outcome == "ok" else 0
        assert value(found["infersweep_requests"], "_total", outcome=outcome) == expected
    assert value(found["infersweep_requests_within_slo"], "_total") == 1
    total = found["infersweep_request_seconds"]
    assert value(total, "_sum") == pytest.approx(0.061)
    assert value(total, "_bucket", le="0.05") == 1
    assert value(total, "_bucket", le="+Inf") == 2
    told = {"in_flight": 2, "pending": 4, "instances": 2, "threads": 6, "loaded_versions": 1}
    assert {name: value(found[f"infersweep_{name}"]) for name in told} == told
    assert value(found["infersweep_worker_restarts"], "_total") == 5


def test_rows_are_counted_in_the_bucket_of_their_batch() -> None:
    statistics = VersionStatistics()
    for rows in (1, 3, 3, 100):
        statistics.record(BatchResult((), rows, {}, None, 0, 0, 0))
    found = families(statistics)["infersweep_batch_rows"]
    counts = {s.labels["le"]: s.value for s in found.samples if "le" in s.labels}
    assert (counts["1.0"], counts["2.0"], counts["4.0"], counts["64.0"]) == (1, 1, 3, 3)
    assert (counts["+Inf"], value(found, "_sum")) == (4, 107)


@pytest.mark.parametrize("name", ['a "quoted" one', "two\nlines", "back\\slash", "ümlaut"])
def test_a_strange_name_breaks_no_scrape(name: str) -> None:
    found = families(VersionStatistics(), name)
    assert found["infersweep_pending"].samples[0].labels["model"] == name


def test_names_follow_prometheus_and_are_told_once() -> None:
    names = [metric.name for metric in metrics.TABLE]
    assert len(set(names)) == len(names)
    for metric in metrics.TABLE:
        assert re.fullmatch(r"infersweep_[a-z_]+", metric.name)
        assert not metric.name.endswith("_total")
        assert metric.help[0].isupper() or metric.help[0].isdigit()
        assert not metric.help.endswith(".")
        if metric.unit in ("seconds", "bytes", "joules", "watts", "hertz", "celsius"):
            assert metric.name.endswith(metric.unit)
