"""Each figure draws what was measured, one look per backend, and the objective where one is set."""

from __future__ import annotations

import json
import math

import plotly.graph_objects as go
import pytest

from loadtest.report import figures, level_figures, load_figures, shape_figures
from loadtest.report.drawn import figures_of
from loadtest.resources.record import ResourceUse
from loadtest.results import Point, Summary
from tests import sample_report as made
from tests.sample_report import with_points

LABELS = ("triton", "onnxruntime", "fastapi", "fastapi:torch")


def with_settings(summary: Summary, **changes: object) -> Summary:
    settings = summary.manifest.settings.model_copy(update=changes)
    manifest = summary.manifest.model_copy(update={"settings": settings})
    return summary.model_copy(update={"manifest": manifest})


def trace(figure: go.Figure, name: str) -> go.Scatter:
    return next(one for one in figure.data if one.name == name)


def last_point(summary: Summary, label: str) -> Point:
    return next(b for b in summary.backends if b.label == label).points[-1]


def test_one_colour_and_symbol_per_backend() -> None:
    summary = made.summary()
    styles = figures.styles(summary)
    assert tuple(styles) == LABELS
    assert len({style.colour for style in styles.values()}) == len(LABELS)
    for make in (
        load_figures.latency_against_load,
        level_figures.latency_percentiles,
        level_figures.throughput_against_level,
    ):
        for one in make(summary).data:
            assert one.marker.color == one.line.color == styles[one.name].colour
    for one in shape_figures.percentile_spectrum(summary).data:
        assert one.line.color == styles[one.name].colour


def test_the_percentile_shown_is_one_that_all_valid_points_have() -> None:
    summary = made.summary()
    assert figures.common_percentile(summary) == "p95"
    title = load_figures.latency_against_load(summary).layout.yaxis.title.text
    assert title.startswith("p95 response time")
    known = last_point(summary, "onnxruntime").response_time_ms
    assert figures.common_percentile(with_points(summary, response_time_ms=known)) == "p99"
    unknown = last_point(summary, "triton").response_time_ms
    assert figures.common_percentile(with_points(summary, response_time_ms=unknown)) == "p50"


def test_invalid_points_are_hollow_and_marked() -> None:
    fastapi = trace(load_figures.latency_against_load(made.summary()), "fastapi")
    assert list(fastapi.marker.symbol) == ["diamond"] * 3 + ["diamond-open"]
    assert [text.strip() for text in fastapi.text] == ["1", "2", "4", "8 ✕"]


def test_bars_of_latency_are_its_bounds() -> None:
    summary = made.summary()
    point = summary.backends[1].points[0]
    found = trace(load_figures.latency_against_load(summary), "onnxruntime")
    assert found.x[0] == point.inferences_per_s
    assert point.response_time_ms.p95 is not None
    assert found.y[0] == point.response_time_ms.p95.value_ms
    assert found.y[0] + found.error_y.array[0] == pytest.approx(point.response_time_ms.p95.high_ms)
    low = found.y[0] - found.error_y.arrayminus[0]
    assert low == pytest.approx(point.response_time_ms.p95.low_ms)


def test_a_bound_that_is_open_has_no_bar_on_that_side() -> None:
    times = last_point(made.summary(), "onnxruntime").response_time_ms
    assert times.p95 is not None
    open_above = times.model_copy(update={"p95": times.p95.model_copy(update={"high_ms": None})})
    figure = load_figures.latency_against_load(
        with_points(made.summary(), response_time_ms=open_above.model_copy(update={"p99": None}))
    )
    assert set(trace(figure, "onnxruntime").error_y.array) == {0.0}


def test_the_objective_is_drawn_where_one_is_set() -> None:
    summary = made.summary()
    plain = [one.name for one in load_figures.latency_against_load(summary).data]
    assert plain == ["triton", "onnxruntime", "fastapi"]
    asked = with_settings(summary, slo_ms=20.0)
    for make in (load_figures.latency_against_load, shape_figures.percentile_spectrum):
        assert set(trace(make(asked), "objective, 20.0 ms").y) == {20.0}
    (first, *_) = figures_of(summary)
    assert "No objective was set" in first.caption
    assert "No objective" not in figures_of(asked)[0].caption


def test_an_open_loop_is_drawn_over_what_was_offered() -> None:
    offered = with_points(made.summary(), planned_per_s=500.0, inferences_per_s=300.0)
    offered = with_points(offered, requests_per_s=150.0)
    closed = load_figures.latency_against_load(offered)
    assert set(trace(closed, "onnxruntime").x) == {300.0}
    # Two rows in each request.
    opened = load_figures.latency_against_load(with_settings(offered, scenario="server"))
    assert set(trace(opened, "onnxruntime").x) == {1000.0}


def test_bars_reach_from_the_lowest_to_the_highest_repeat() -> None:
    summary = made.summary()
    found = trace(level_figures.throughput_against_level(summary), "onnxruntime")
    low, high = summary.backends[1].points[0].inferences_per_s_range
    assert found.y[0] + found.error_y.array[0] == pytest.approx(high)
    assert found.y[0] - found.error_y.arrayminus[0] == pytest.approx(low)


def test_the_spectrum_ends_where_its_samples_end_and_is_dotted_from_the_time_limit_on() -> None:
    figure = shape_figures.percentile_spectrum(made.summary())
    known, limited = (one for one in figure.data if one.name == "triton")
    assert (known.line.dash, limited.line.dash) == ("solid", "dot")
    # At 1 / (1 - q): known below 99%, then from the last known one up to 99.9%.
    assert list(known.x) == pytest.approx([2, 10, 20])
    assert list(limited.x) == pytest.approx([20, 100, 1000])
    assert figure.layout.xaxis.type == "log"
    assert list(figure.layout.xaxis.ticktext) == ["50%", "90%", "99%", "99.9%", "99.99%"]
    assert 10 ** figure.layout.xaxis.range[1] > 10_000


def test_a_cell_is_the_share_of_its_second_and_nothing_is_not_zero() -> None:
    summary = made.summary()
    first = shape_figures.latency_over_time(summary).data[0]
    # All four in the lower row, then three; one of four in the upper.
    assert [list(row) for row in first.z] == [[0.0, round(math.log10(0.75), 2)], [None, -0.6]]
    assert [list(row) for row in first.customdata] == [[4, 3], [0, 1]]
    assert (list(first.x), list(first.y)) == ([0.0, 1.0, 2.0], [5.0, 10.0, 40.0])


def test_energy_is_drawn_only_where_it_was_measured() -> None:
    summary = made.summary()
    ids = [figure.id for figure in figures_of(summary)]
    assert ids == [
        *("latency-load", "spectrum", "heatmap"),
        *("latency-percentiles", "throughput-level", "energy"),
    ]
    gross, net = load_figures.energy_against_load(summary).data
    assert gross.name == net.name == "triton"
    assert (net.line.dash, net.showlegend) == ("dot", False)
    # 18 J and, above idle, 12 J each second.
    assert list(gross.y) == pytest.approx([18.0 / x for x in gross.x])
    assert list(net.y) == pytest.approx([12.0 / x for x in net.x])
    without = with_points(summary, resources=ResourceUse(window_s=1.0, samples=1))
    assert [figure.id for figure in figures_of(without)] == ids[:-1]


def test_more_levels_than_can_be_read_side_by_side_are_left_to_the_table() -> None:
    summary = made.summary()
    first = summary.backends[0]
    many = tuple(
        first.points[0].model_copy(update={"level": float(level)})
        for level in range(level_figures.MOST_PANELS + 1)
    )
    wide = first.model_copy(update={"points": many})
    found = figures_of(summary.model_copy(update={"backends": (wide,)}))
    assert "latency-percentiles" not in [figure.id for figure in found]


def test_a_hostile_label_is_no_markup_in_any_figure() -> None:
    label = "<img src=x onerror=alert(1)>"
    text = made.summary().model_dump_json().replace('"triton"', json.dumps(label))
    for figure in figures_of(Summary.model_validate_json(text)):
        assert "<img" not in figure.data
        assert "\\u003cimg" not in figure.data


@pytest.mark.parametrize(("values", "least"), [((2.1, 2.4), 3), ((3.0, 60.0), 3), ((1.0, 1e5), 4)])
def test_any_range_has_ticks_to_read(values: tuple[float, ...], least: int) -> None:
    axis = figures.log_axis(values, 1.15)
    low, high = (10**end for end in axis["range"])
    assert sum(low <= tick <= high for tick in axis["tickvals"]) >= least
    assert len(axis["tickvals"]) == len(axis["ticktext"])
