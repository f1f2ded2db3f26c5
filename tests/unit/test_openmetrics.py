"""A finished run as OpenMetrics text: nothing is lost, doubled or made up."""

from __future__ import annotations

import io
import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from weakref import ref

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from prometheus_client.openmetrics.parser import text_string_to_metric_families

from loadtest.folder import ResultsFolder
from loadtest.histogram import Tally, encode, merge
from loadtest.metrics import CLIENT_METRICS, LOAD
from loadtest.observing import finished
from loadtest.observing.finished import read_run
from loadtest.observing.openmetrics import FAMILIES, in_buckets, lines, write_text
from loadtest.resources.record import CoreState, Sample
from loadtest.results import IN_PERCENTILES, OUTCOMES, Histograms
from serving.errors import ResultsError
from serving.metrics.buckets import CLIENT_NS, per_decade
from tests import sample_trials as made
from tests.sample_runs import START_S, Ended, measure, new_run, small_run, text_of


def points_of(text: str) -> Iterator[str]:
    """The text cut into one text per moment, family by family.

    prometheus_client (0.26) drops all but the first sample of a histogram's second moment, so it
    is given one at a time.
    """
    assert text.endswith("\n# EOF\n")
    head: list[str] = []
    families = []
    for is_head, rows in groupby(
        io.StringIO(text.removesuffix("# EOF\n")), lambda row: row.startswith("# ")
    ):
        if is_head:
            head = list(rows)
            families.append(head[0].split()[2])
            continue
        for _, moment in groupby(rows, lambda row: row.split()[-1]):
            samples = list(moment)
            assert all(row.startswith(families[-1]) for row in samples)
            yield "".join([*head, *samples, "# EOF\n"])
    assert len(set(families)) == len(families), "families do not interleave"


class Parsed:
    """Samples by name and labels, in the order of the text, as a reader of OpenMetrics sees it."""

    def __init__(self, folder: ResultsFolder) -> None:
        self.text = text_of(folder)
        self.samples: dict[str, dict[frozenset[tuple[str, str]], list[tuple[float, float]]]] = {}
        for text in points_of(self.text):
            for sample in next(text_string_to_metric_families(text)).samples:
                series = self.samples.setdefault(sample.name, {})
                point = (round(float(sample.timestamp) - START_S, 3), sample.value)
                series.setdefault(frozenset(sample.labels.items()), []).append(point)

    def of(self, name: str, **labels: str) -> list[tuple[float, float]]:
        """Seconds after START_S and values of the only series with these labels."""
        wanted = set(labels.items())
        (found,) = (
            points
            for own, points in self.samples[f"infersweep_client_{name}"].items()
            if wanted <= own
        )
        return found


def test_every_second_of_a_window_has_what_was_counted_up_to_its_end(tmp_path: Path) -> None:
    found = Parsed(small_run(tmp_path / "run"))
    assert found.of("requests_total", outcome="ok") == [(0, 0), (1, 1), (2, 3)]
    assert found.of("due_total") == [(0, 0), (1, 1), (2, 3)]
    assert found.of("response_seconds_count", outcome="ok") == [(0, 0), (1, 1), (2, 3)]
    assert found.of("response_seconds_bucket", le="0.001", outcome="ok") == [(0, 0), (1, 1), (2, 1)]
    labels = {"run": "run", "backend": "triton", "model": "tiny", "scenario": "closed"}
    assert len(found.of("due_total", **labels)) == 3


def test_a_second_window_goes_on_from_the_first(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    measure(folder, "triton", [(0, made.MS, "ok")], after_s=60.5)
    found = Parsed(folder)
    points = [(0, 0), (1, 1), (2, 3), (60.5, 3), (61.5, 4), (62.5, 4)]
    assert found.of("requests_total", outcome="ok") == points
    assert found.of("service_seconds_bucket", outcome="ok", le="+Inf") == points


def test_trials_are_in_the_order_of_their_windows(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    measure(folder, "triton", [(0, made.MS, "ok")] * 5, after_s=30)
    measure(folder, "triton", [(0, made.MS, "ok")], after_s=10)
    times = [at for at, _ in Parsed(folder).of("due_total")]
    assert times == [10, 11, 12, 30, 31, 32]


def test_the_last_second_of_a_window_may_be_short(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    measure(folder, "triton", [(0, made.MS, "ok")], length_s=1.25)
    measure(folder, "triton", [(0, made.MS, "ok")], length_s=1.0001, after_s=9)
    times = [at for at, _ in Parsed(folder).of("due_total")]
    assert times == [0, 1, 1.25, 9, 10, 10.002], "no two samples at one ms"


def test_what_has_no_second_is_added_at_the_end_of_its_window(tmp_path: Path) -> None:
    folder = new_run(tmp_path / "run")
    measure(folder, "triton", [(0, made.MS, "not_sent"), (0, made.MS, "ok")])
    found = Parsed(folder)
    assert found.of("requests_total", outcome="not_sent") == [(0, 0), (1, 0), (2, 1)]
    assert found.of("due_total") == [(0, 0), (1, 1), (2, 2)]
    assert found.of("lateness_seconds_count") == [(0, 0), (1, 0), (2, 1)]
    outcomes = {
        dict(own)["outcome"] for own in found.samples["infersweep_client_service_seconds_sum"]
    }
    assert outcomes == set(IN_PERCENTILES), "what was not sent has no duration"


def test_level_and_phase_hold_for_the_window_and_end_with_it(tmp_path: Path) -> None:
    found = Parsed(small_run(tmp_path / "run"))
    assert found.of("phase") == [(0, 2), (1, 2), (2, 0)]
    (*inside, last) = found.of("level")
    assert inside == [(0, 4), (1, 4)]
    assert last[0] == 2
    assert math.isnan(last[1])


def test_an_invalid_trial_is_exported_too(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    measure(folder, "triton", [(0, made.MS, "ok")], after_s=9, verdict="INVALID", reasons=("x",))
    found = Parsed(folder)
    assert found.of("trials_total", verdict="VALID")[-1] == (11, 1)
    invalid = [(0, 0), (1, 0), (2, 0), (9, 0), (10, 0), (11, 1)]
    assert found.of("trials_total", verdict="INVALID") == invalid
    assert found.of("requests_total", outcome="ok")[-1] == (11, 4)


def test_the_objective_is_a_bound_of_its_own(tmp_path: Path) -> None:
    found = Parsed(small_run(tmp_path / "run", slo_ms=2.9))
    assert found.of("within_slo_total") == [(0, 0), (1, 1), (2, 1)]
    assert found.of("response_seconds_bucket", le="0.0029", outcome="ok") == [
        (0, 0),
        (1, 1),
        (2, 1),
    ]
    assert found.of("slo_seconds") == [(0, 0.0029), (1, 0.0029), (2, 0.0029)]


def test_what_is_not_known_is_absent(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    text = text_of(folder)
    assert "slo" not in text
    assert "ceiling" not in text
    measure(folder, "fastapi", [(0, made.MS, "ok")], after_s=9, ceiling_rps=1234.5)
    assert [value for _, value in Parsed(folder).of("ceiling_rps")] == [1234.5] * 3


def test_the_text_has_the_metrics_of_the_live_exporter_and_no_others(tmp_path: Path) -> None:
    assert {metric for metric, _ in FAMILIES} == set(CLIENT_METRICS)
    text = text_of(small_run(tmp_path / "run"))
    assert "# UNIT infersweep_client_response_seconds seconds\n" in text
    assert "# UNIT infersweep_client_ceiling_rps" not in text, "its name does not end in its unit"
    assert text.endswith("\n# EOF\n")
    for name, labels in (("requests_total", (*LOAD, "outcome")), ("phase", LOAD)):
        (line, *_) = (row for row in text.splitlines() if f"client_{name}{{" in row)
        assert [part.split("=")[0] for part in line[line.index("{") + 1 :].split(",")] == [*labels]


names = st.text(
    st.characters(exclude_characters="/\0", exclude_categories=["Cs"]), min_size=1, max_size=40
).filter(lambda name: name not in (".", ".."))
ended = st.tuples(
    st.integers(0, 2 * made.SECOND - 1),
    st.integers(0, 10**11),
    st.sampled_from(["ok", "timeout", "not_sent"]),
)
windows = st.lists(
    st.tuples(st.sampled_from(["triton", 'a "b"\\n']), st.lists(ended, max_size=12)),
    min_size=1,
    max_size=2,
)


@settings(max_examples=15, deadline=None)
@given(name=names, windows=windows, slo_ms=st.none() | st.floats(0.01, 9e3))
@example(name='"a"\n\\n\\ \r', windows=[('a "b"\\n', [(0, 1, "ok")])], slo_ms=1.0)
def test_every_run_gives_text_that_adds_up(
    name: str, windows: list[tuple[str, list[Ended]]], slo_ms: float | None
) -> None:
    with tempfile.TemporaryDirectory() as parent, pytest.MonkeyPatch.context() as patch:
        # Few buckets: prometheus_client takes its time with each.
        patch.setattr(finished, "CLIENT_NS", per_decade(2))
        folder = new_run(Path(parent) / name, slo_ms=slo_ms)
        for index, (backend, requests) in enumerate(windows):
            measure(folder, backend, requests, after_s=60 * index)
        found = Parsed(folder)
        trials = folder.read_trials()
    for backend in {trial.backend for trial in trials}:
        own = [trial for trial in trials if trial.backend == backend]
        labels = {"run": name, "backend": backend}
        assert found.of("due_total", **labels)[-1][1] == sum(trial.planned for trial in own)
        for outcome in OUTCOMES:
            counted = found.of("requests_total", **labels, outcome=outcome)
            assert counted[-1][1] == sum(trial.outcomes[outcome] for trial in own)
            if outcome == "ok" or (outcome == "timeout" and counted[-1][1]):
                of = {**labels, "outcome": outcome}
                assert found.of("response_seconds_count", **of) == counted
                assert found.of("service_seconds_bucket", **of, le="+Inf") == counted
    for metric, series in found.samples.items():
        if metric.endswith(("_total", "_bucket", "_count", "_sum")):
            assert_never_falls(series)


def assert_never_falls(
    series: Mapping[frozenset[tuple[str, str]], Sequence[tuple[float, float]]],
) -> None:
    """In time; and of buckets, from bound to bound."""
    by_bound: dict[frozenset[tuple[str, str]], list[tuple[float, list[float]]]] = {}
    for labels, points in series.items():
        times, values = zip(*points, strict=True)
        assert all(np.diff(times) > 0)
        assert all(np.diff(values) >= 0)
        assert values[0] == 0
        bound = float(dict(labels).get("le", "inf"))
        others = frozenset(pair for pair in labels if pair[0] != "le")
        by_bound.setdefault(others, []).append((bound, list(values)))
    for buckets in by_bound.values():
        assert (np.diff([values for _, values in sorted(buckets)], axis=0) >= 0).all()


def packed(values_ns: Sequence[int]) -> str:
    tally = Tally()
    tally.add(np.array(values_ns, np.int64))
    return encode(tally.histogram())


durations = st.lists(
    st.integers(1_000, 600 * made.SECOND) | st.sampled_from(CLIENT_NS), min_size=1, max_size=40
)


@given(durations)
@example([1025 * 2**19 - 1])  # The end of a bucket that is as wide as they get.
def test_a_value_at_a_bound_belongs_to_it_and_none_moves_further_than_told(
    values: list[int],
) -> None:
    counts, sum_ns = in_buckets(packed(values), CLIENT_NS)
    up_to = np.cumsum(counts)
    assert up_to[-1] == len(values)
    for bound, found in zip(CLIENT_NS, up_to, strict=False):
        least = sum(value <= bound for value in values)
        most = sum(value < bound + max(512, bound / 1000) for value in values)
        assert least <= found <= most
    assert abs(sum_ns - sum(values)) <= sum(max(256, value * 0.0005) for value in values)


def quantile_of(counts: Sequence[int], quantile: Fraction) -> float:
    """As Prometheus's histogram_quantile: linear between the bounds of the bucket, ns."""
    rank, below, lower = quantile * sum(counts), 0, 0
    for bound, count in zip(CLIENT_NS, counts, strict=False):
        if below + count >= rank:
            return float(lower + (bound - lower) * (rank - below) / count)
        below, lower = below + count, bound
    return float(lower)


@given(
    st.lists(st.integers(CLIENT_NS[0] + 1_000, CLIENT_NS[-1]), min_size=1, max_size=60),
    st.sampled_from([Fraction(1, 2), Fraction(9, 10), Fraction(99, 100)]),
)
def test_a_quantile_read_from_buckets_is_within_a_bucket_of_the_histogram_s(
    values: list[int], quantile: Fraction
) -> None:
    encoded = packed(values)
    exact = sorted(values)[math.ceil(quantile * len(values)) - 1]
    from_buckets = quantile_of(in_buckets(encoded, CLIENT_NS)[0].tolist(), quantile)
    # 25 bounds in a decade; a bound has four digits and HDR's buckets are 0.1% wide.
    widest = 10 ** (1 / 25) * 1.002
    assert exact / widest <= from_buckets <= exact * widest
    assert merge([encoded]).total_count == len(values)


def test_a_run_of_an_older_infersweep_is_refused_by_name(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "last-year")
    measure(folder, "fastapi", [(0, 1, "ok")], window_started_unix_s=None)
    with pytest.raises(ResultsError, match=r"last-year was measured by an older infersweep"):
        read_run(folder)


def test_windows_that_overlap_are_refused(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    measure(folder, "triton", [(0, 1, "ok")], after_s=1.5)
    with pytest.raises(ResultsError, match="clock was set back"):
        read_run(folder)


def test_a_run_without_a_finished_trial_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="no finished trial"):
        read_run(new_run(tmp_path / "run"))


@pytest.mark.parametrize(
    "changes",
    [{"outcomes": made.outcomes(ok=9)}, {"completed": (1, 1, 1)}],
    ids=["a count", "a second"],
)
def test_histograms_that_are_not_the_trial_s_are_refused(
    tmp_path: Path, changes: dict[str, object]
) -> None:
    folder = new_run(tmp_path / "run")
    measure(folder, "triton", [(0, 1, "ok")], **changes)
    with pytest.raises(ResultsError, match="differ from its histograms"):
        text_of(folder)


class Second(dict[str, str]):
    """Histograms of one second, of which it can be told whether they are still in memory."""


class Counting(ResultsFolder):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.read: list[ref[Second]] = []

    def read_histograms(self, trial_id: str) -> Histograms:
        found = super().read_histograms(trial_id)
        seconds = tuple(map(Second, found.response_time))
        self.read += map(ref, seconds)
        return found.model_copy(update={"response_time": seconds})


def test_one_trial_s_histograms_are_in_memory_at_a_time(tmp_path: Path) -> None:
    folder = Counting(new_run(tmp_path / "run").path)
    for index in range(5):
        measure(folder, "triton", [(0, made.MS, "ok")], after_s=9 * index)
    text = lines(read_run(folder))
    assert next(text).startswith("# TYPE")
    assert not folder.read
    most = max(sum(second() is not None for second in folder.read) for _ in text)
    assert most == 2, "a trial has two seconds"
    assert len(folder.read) >= 10


def test_progress_reaches_its_end(tmp_path: Path) -> None:
    told: list[tuple[int, int]] = []
    write_text(read_run(small_run(tmp_path / "run")), io.BytesIO(), lambda *part: told.append(part))
    totals = {total for _, total in told}
    assert [done for done, _ in told] == list(range(1, totals.pop() + 1))
    assert not totals


def test_what_was_sampled_beside_the_run_is_exported_at_its_moments(tmp_path: Path) -> None:
    folder = small_run(tmp_path / "run")
    moments = (0.0, 1.0, 1.0004, 2.0)
    with folder.resources.open("w") as file:
        for second, busy_s in zip(moments, (5.0, 5.5, 5.6, 6.0), strict=True):
            cores = {"0": CoreState(busy_s=busy_s, stolen_s=0.0)}
            why = {"rails": 'no "sensor"'}
            sample = Sample(
                unix_s=START_S + second, monotonic_s=second, cores=cores, unmeasurable=why
            )
            file.write(sample.model_dump_json() + "\n")
    found = Parsed(folder).samples
    (series,) = found["infersweep_core_busy_seconds_total"].values()
    assert series == [(0.0, 5.0), (1.0, 5.5), (2.0, 6.0)]
    (labels,) = found["infersweep_unmeasurable"]
    assert ("why", 'no "sensor"') in labels
