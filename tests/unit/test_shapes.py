"""Spectrum and heatmap are made from histograms, as far as those say something."""

from __future__ import annotations

import numpy as np
import pytest

from loadtest.analysis import samples_of
from loadtest.confidence import sample_floor
from loadtest.results import Histograms, Point, Trial
from loadtest.searched import AnswerRecord, ProbeRecord, SearchRecord
from loadtest.shapes import COLUMNS, best_trials, heatmap_of, shapes_of, spectrum_of
from tests import sample_report
from tests import sample_trials as made

MS = made.MS
Kept = tuple[Trial, Histograms]


def kept(level: float, repeat: int, latencies_ms: list[float], **changes: object) -> Kept:
    return made.trial("triton", level, repeat, [round(ms * MS) for ms in latencies_ms], **changes)


def test_the_spectrum_ends_at_the_highest_quantile_that_the_samples_bound() -> None:
    _, histograms = kept(1, 1, list(np.linspace(1, 100, 500)))
    spectrum = spectrum_of(samples_of(histograms.response_time), 1)
    assert spectrum is not None
    assert spectrum.samples == 500
    last = spectrum.quantiles[-1]
    assert sample_floor(last) <= 500
    # 20 of them lie evenly in a decade, so the next one is so much nearer to 1.
    assert sample_floor(1 - (1 - last) / 10 ** (1 / 20)) > 500
    assert list(spectrum.quantiles) == sorted(set(spectrum.quantiles))


@pytest.mark.parametrize("quantile", [0.5, 0.9, 0.95, 0.99])
def test_named_quantiles_are_in_the_spectrum_with_their_own_value(quantile: float) -> None:
    _, histograms = kept(1, 1, list(np.linspace(1, 100, 500)))
    samples = samples_of(histograms.response_time)
    spectrum = spectrum_of(samples, 1)
    found = samples.percentile(quantile)
    assert spectrum is not None
    assert found is not None
    at = spectrum.quantiles.index(quantile)
    assert spectrum.values_ms[at] == found.value / MS
    # 1 ms to 100 ms evenly, by nearest rank, known to 0.1%.
    assert spectrum.values_ms[at] == pytest.approx(1 + 99 * quantile, rel=0.01)


def test_requests_that_were_not_sent_make_the_upper_end_a_lower_bound() -> None:
    _, histograms = kept(1, 1, [5.0] * 460)
    spectrum = spectrum_of(samples_of(histograms.response_time, 40), 1)
    assert spectrum is not None
    # 40 of 500 never went: above 92% nobody knows.
    assert spectrum.at_least_from is not None
    assert 0.92 <= spectrum.at_least_from < 0.93


def test_too_few_samples_have_no_spectrum() -> None:
    _, histograms = kept(1, 1, [5.0] * (sample_floor(0.11) - 1))
    assert spectrum_of(samples_of(histograms.response_time), 1) is None


def test_a_heatmap_counts_every_request_in_its_second_and_row() -> None:
    # Two seconds with as many requests each: the second one is ten times slower.
    trial, histograms = kept(1, 1, [10.0] * 50 + [100.0] * 50)
    heatmap = heatmap_of(histograms.response_time, trial)
    assert heatmap is not None
    assert [sum(column) for column in heatmap.counts] == [50, 50]
    assert heatmap.counts[0][0] == heatmap.counts[1][-1] == 50
    assert heatmap.edges_ms[0] < 10.0 < heatmap.edges_ms[1]
    assert heatmap.edges_ms[-2] < 100.0 < heatmap.edges_ms[-1]
    assert len(heatmap.edges_ms) == len(heatmap.counts[0]) + 1


def test_equal_latencies_are_one_row() -> None:
    trial, histograms = kept(1, 1, [10.0] * 50)
    heatmap = heatmap_of(histograms.response_time, trial)
    assert heatmap is not None
    assert heatmap.counts == ((25,), (25,))


def test_a_long_window_has_several_seconds_in_a_column() -> None:
    trial, histograms = kept(1, 1, [10.0] * 50)
    long = [histograms.response_time[0]] * (2 * COLUMNS + 1)
    heatmap = heatmap_of(long, trial)
    assert heatmap is not None
    assert heatmap.column_s == 3.0
    assert sum(map(sum, heatmap.counts)) == 25 * len(long)


def test_a_window_without_an_answer_has_no_heatmap() -> None:
    trial, _ = kept(1, 1, [10.0])
    assert heatmap_of([{}, {}], trial) is None


def test_shapes_are_of_all_repeats_and_of_the_middle_one() -> None:
    windows = [kept(1, repeat, [5.0] * count) for repeat, count in ((1, 30), (2, 50), (3, 40))]
    read = {trial.id: histograms for trial, histograms in windows}
    spectrum, heatmap = shapes_of([trial for trial, _ in windows], read.__getitem__)
    assert spectrum is not None
    assert heatmap is not None
    assert spectrum.samples == 120
    assert heatmap.trial == windows[2][0].id
    assert shapes_of([], read.__getitem__) == (None, None)


def point(level: float, rate: float, verdict: str) -> Point:
    first = sample_report.summary().backends[1].points[0]
    changes = {"level": level, "inferences_per_s": rate, "verdict": verdict}
    return first.model_copy(update=changes)


def test_the_best_point_of_a_sweep_is_the_valid_one_with_the_most_answers() -> None:
    points = [point(1, 10.0, "VALID"), point(4, 40.0, "VALID"), point(8, 80.0, "INVALID")]
    trials = [kept(level, 1, [1.0])[0] for level in (1, 4, 8)]
    failed, _ = kept(4, 2, [1.0], verdict="INVALID", reasons=["lost"])
    assert best_trials([*trials, failed], points, ()) == [trials[1]]
    assert best_trials(trials, points[2:], ()) == []


def found(repeat: int, rate_rps: float, *, complete: bool = True) -> SearchRecord:
    probe = ProbeRecord(
        number=1,
        trial=f"r{repeat}",
        rate_rps=rate_rps,
        verdict="met",
        why="",
        cut=False,
        window_s=1.0,
        requests=1,
        latencies=(),
        found=(),
    )
    answer = AnswerRecord(kind="found", rate_rps=rate_rps, missed_rps=None, sentence="", reasons=())
    return SearchRecord(
        backend="triton",
        repeat=repeat,
        objectives=("p99<=1ms",),
        complete=complete,
        closed=(),
        probes=(probe,),
        answer=answer,
    )


def test_the_best_of_searches_is_the_rate_of_the_median_answer() -> None:
    rates = (50.0, 70.0, 60.0)
    points = [point(rate, rate, "VALID") for rate in rates]
    trials = [kept(rate, number, [1.0])[0] for number, rate in enumerate(rates, 1)]
    searches = [found(number, rate) for number, rate in enumerate(rates, 1)]
    assert best_trials(trials, points, searches) == [trials[2]]
    # Of two answers the lower one; one that is not complete is none.
    unfinished = [*searches[:2], found(3, 60.0, complete=False)]
    assert best_trials(trials, points, unfinished) == [trials[0]]
