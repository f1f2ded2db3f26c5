"""The page of a plan, its figures, and the same in Markdown and in the terminal."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import plotly.graph_objects as go
import pytest
from rich.console import Console

from loadtest.plan.figures import STATES, curve_figure, fleet_figure, stress_figure
from loadtest.plan.markdown import markdown
from loadtest.plan.page import NAME, render, write_page
from loadtest.plan.record import Plan, Range
from loadtest.plan.scaling import scaling_of
from loadtest.plan.terminal import answer_text, plan_table, verification_table
from loadtest.plan.wording import answer_of, labels_of, told_of_tests
from loadtest.report.markdown import escape
from serving.errors import UsageError
from tests import sample_plan as made
from tests.pages import NASTY, spoiled, text_of


def section(page: str, identity: str) -> str:
    found = re.search(rf'<section id="{identity}".*?</section>', page, re.S)
    assert found, identity
    return found[0]


def row_of(page: str, identity: str, name: str) -> list[str]:
    """The cells behind a name in a section's first table."""
    rows = re.findall(r"<tr>.*?</tr>", section(page, identity), re.S)
    row = next(row for row in rows if name in row.partition("</th>")[0])
    return [text_of(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", row, re.S)]


def wicked() -> Plan:
    """Every text that a user or a server may have written does its worst."""
    text = made.plan().model_dump_json()
    kept = {"p99", "p50", made.asked().objective, *(one.verdict for one in made.verifications())}
    return Plan.model_validate(spoiled(json.loads(text), kept))


def test_the_answer_comes_first_with_what_tests_said_of_it() -> None:
    plan = made.plan()
    text = text_of(render(plan))
    assert plan.sentence in text
    assert text.index(plan.sentence) < text.index(told_of_tests(plan)) < text.index("Breaks first")


def test_an_option_without_a_number_shows_its_reason_and_no_zero() -> None:
    plan = made.plan()
    page = render(plan)
    cells = row_of(page, "options", "fastapi")
    assert cells[0] == "no number"
    assert "0" not in cells
    assert f"No number: {made.fastapi().why}" in text_of(section(page, "options"))
    assert made.fastapi().energy_missing in text_of(section(page, "energy"))
    known = row_of(page, "options", "onnxruntime")
    assert known[0] == str(made.onnxruntime().replicas)


def test_a_plan_without_any_number_has_no_figures_and_says_so() -> None:
    plan = made.plan(options=(made.fastapi(),), chosen=None, verifications=(), scaling={})
    page = render(plan)
    text = text_of(page)
    assert answer_of(plan).label == "No answer"
    assert "chosen" not in text
    assert "there is nothing to draw" in text
    assert "No load was run to test the prediction." in text
    assert 'class="plot"' not in page


@pytest.mark.parametrize(
    ("verdicts", "label"),
    [
        ((), "Predicted, not tested"),
        (("INVALID",), "Predicted, not tested"),
        (("within 15%", "INVALID"), "Predicted and tested"),
        (("within 15%", "missed"), "A test missed"),
    ],
)
def test_the_badge_is_green_only_where_every_test_was_met(
    verdicts: tuple[str, ...], label: str
) -> None:
    own = tuple(made.verification(0.5, 0.0, verdict=verdict) for verdict in verdicts)
    others = (
        made.verification(0.5, 0.3, backend="triton", profile=made.PROFILES["triton"]),
        made.verification(0.5, 0.3, profile="profiles/another-onnxruntime.json"),
    )
    plan = made.plan(verifications=own + others)
    assert answer_of(plan).label == label
    assert (answer_of(plan).kind == "winner") == (label == "Predicted and tested")


def test_whatever_was_written_by_others_is_escaped() -> None:
    page = render(wicked())
    assert "<img" not in re.sub(r'<script id="plotly">.*?</script>', "", page, flags=re.S)
    assert "<b>bold" not in page
    assert text_of(page).count(NASTY) > 30
    blocks = re.findall(r'<script type="application/json" id="[^"]+">(.*?)</script>', page, re.S)
    for block in blocks:
        assert "&lt;b&gt;bold" in json.dumps(json.loads(block)["data"])


def test_the_page_names_no_resource_outside_itself() -> None:
    page = render(made.plan())
    bare = re.sub(r'<script id="plotly">.*?</script>', "", page, flags=re.S)
    targets = re.findall(r'(?:src|href)\s*=\s*"([^"]*)"', bare)
    assert targets
    assert all(target.startswith(("#", "data:")) for target in targets)
    assert not re.search(r"url\(|@import|https?:", bare)
    assert "default-src 'none'" in bare


def trace_of(figure: go.Figure, name: str) -> Any:
    (found,) = [trace for trace in figure.data if trace.name == name]
    return found


def test_the_steps_are_those_of_the_record_and_stars_are_its_plan() -> None:
    plan = made.plan()
    figure = fleet_figure(plan)
    for option in plan.options:
        if option.fleet:
            trace = trace_of(figure, option.backend)
            drawn = list(zip(trace.x, trace.y, strict=True))
            assert drawn == [(point.rate_rps, point.replicas) for point in option.fleet]
            assert trace.line.shape == "vh"
    stars = [(*trace.x, *trace.y) for trace in figure.data if trace.marker.symbol == "star"]
    numbers = [option.replicas for option in plan.options if option.replicas is not None]
    assert stars == [(plan.asked.rate_rps, number) for number in numbers]


def test_the_curves_and_their_bands_are_those_of_the_record() -> None:
    plan = made.plan()
    figure = curve_figure(plan)
    for option in plan.options:
        if not option.curve:
            continue
        trace = trace_of(figure, option.backend)
        assert list(trace.x) == [100 * point.utilisation for point in option.curve]
        assert list(trace.y) == [point.response_ms.value for point in option.curve]
        (band,) = [
            one
            for one in figure.data
            if one.fill == "toself" and one.legendgroup == trace.legendgroup
        ]
        half = len(option.curve)
        assert list(band.y[:half]) == [point.response_ms.high for point in option.curve]
        assert list(band.y[half:])[::-1] == [point.response_ms.low for point in option.curve]
    line = next(trace for trace in figure.data if trace.line.dash == "dash")
    assert set(line.y) == {made.LIMIT_MS}


def test_measured_points_stand_on_the_curve_with_their_bounds() -> None:
    """Those of another percentile would lie below it."""
    plan = made.plan()
    figure = curve_figure(plan)
    trace = trace_of(figure, "onnxruntime, measured")
    own = [
        one
        for one in plan.verifications
        if one.profile == made.PROFILES["onnxruntime"] and one.percentile == "p99"
    ]
    assert len(own) == 3
    assert list(trace.x) == [100 * one.utilisation for one in own]
    assert list(trace.y) == [one.measured_ms for one in own]
    lows = [one.measured_ms - one.measured_low_ms for one in own]
    assert list(trace.error_y.arrayminus) == pytest.approx(lows)
    assert trace.error_y.array[-1] == 0, "there is no upper bound to draw"
    missed = trace.marker.symbol[-1]
    assert missed not in trace.marker.symbol[:-1]
    invalid = trace_of(figure, "triton, measured")
    assert all(symbol.endswith("-open") for symbol in invalid.marker.symbol)


def test_what_cannot_keep_up_has_no_point_after_a_failure() -> None:
    plan = made.plan()
    figure = stress_figure(plan)
    for option in plan.options[:2]:
        assert option.failure is not None
        assert option.burst is not None
        ranges = (option.response_ms, option.failure.response_ms, option.burst.response_ms)
        known = {i: one for i, one in enumerate(ranges) if isinstance(one, Range)}
        trace = trace_of(figure, option.backend)
        assert list(trace.y) == [one.value for one in known.values()]
        assert [round(x) for x in trace.x] == list(known)
    assert made.triton().failure.response_ms is None  # type: ignore[union-attr]
    assert len(STATES) == 3
    assert "cannot keep up" in row_of(render(plan), "failures", "triton")


def test_a_plan_of_one_replica_has_none_left_after_a_failure() -> None:
    alone = made.triton(replicas=1)
    plan = made.plan(options=(alone,))
    assert alone.failure is not None
    assert alone.failure.failed == 1
    text = text_of(section(render(plan), "failures"))
    assert "none left" in text
    assert "None is left." in text
    assert f"{alone.failure.utilisation:.0%}" not in text


def test_figures_in_the_page_are_data_that_can_be_read() -> None:
    plan = made.plan()
    page = render(plan)
    blocks = dict(
        re.findall(r'<script type="application/json" id="([^"]+)">(.*?)</script>', page, re.S)
    )
    made_of = {"fleet": fleet_figure, "curve": curve_figure, "stress": stress_figure}
    assert set(blocks) == {f"{name}-data" for name in made_of}
    for name, figure in made_of.items():
        assert json.loads(blocks[f"{name}-data"]) == json.loads(figure(plan).to_json())


def test_a_payload_that_the_uplink_cannot_carry_is_called_impossible() -> None:
    page = render(made.plan())
    for cost in made.wire():
        (*_, share) = row_of(page, "wire", cost.payload)
        assert ("impossible" in share) == (cost.uplink_share > 1), cost
    assert len(re.findall(r"<table", section(page, "wire"))) == 1, "both options share the link"


def test_without_a_rate_of_one_client_no_share_is_shown() -> None:
    wire = tuple(cost.model_copy(update={"uplink_share": 0.0}) for cost in made.wire())
    plan = made.plan(options=(made.onnxruntime(wire=wire),))
    shares = [row_of(render(plan), "wire", cost.payload)[-1] for cost in wire]
    assert shares == ["-"] * len(wire)


def test_options_with_links_of_their_own_have_tables_of_their_own() -> None:
    plan = made.plan(options=(made.onnxruntime(), made.triton(wire=made.wire()[2:])))
    wires = section(render(plan), "wire")
    assert re.findall(r"<h3>(.*?)</h3>", wires) == ["onnxruntime", "triton"]


def test_assumptions_are_marked_and_sources_are_shown() -> None:
    page = section(render(made.plan()), "asked")
    sources = made.asked().link_sources
    assumed = [source for source in sources.values() if source.startswith("assumption")]
    assert len(assumed) == 2
    assert len(re.findall(r'class="badge open">assumption<', page)) == len(assumed)
    for value in sources:
        assert value in text_of(page)


def test_closed_forms_stand_beside_the_simulation_and_the_law_below() -> None:
    plan = made.plan()
    checks = text_of(section(render(plan), "crosschecks"))
    for option in plan.options:
        for check in option.crosschecks:
            assert check.name in checks
    assert f"onnxruntime: {made.onnxruntime().scalability}." in checks
    alone = made.plan(options=(made.triton(crosschecks=(), scalability="fitted within 1%"),))
    assert "fitted within 1%" in text_of(section(render(alone), "crosschecks"))


def test_what_more_instances_bring_is_shown_with_the_highest_rate_marked() -> None:
    points = scaling_of({1: 2162.0, 2: 4061.0, 4: 3135.0})
    plan = made.plan(scaling={f"onnxruntime{NASTY}": points})
    page = render(plan)
    rows = re.findall(r"<tr>.*?</tr>", section(page, "crosschecks"), re.S)[-3:]
    for row, one in zip(rows, points, strict=True):
        assert f"{one.efficiency:.0%}" in text_of(row)
        assert ("highest" in text_of(row)) == one.knee
    assert "-21%" in text_of(rows[-1])
    assert "<b>bold" not in page
    assert "2 of 4,061.0/s, efficiency 94% (the highest rate)" in markdown(plan)
    assert "(the highest rate)" in " ".join(printed(plan_table(plan)).split())
    alone = made.plan(options=(made.fastapi(),), scaling={"fastapi": points})
    assert 'href="#crosschecks"' in render(alone)


def test_every_test_stands_in_its_table_with_its_reasons() -> None:
    plan = made.plan()
    tests = text_of(section(render(plan), "tests"))
    for one in plan.verifications:
        assert f"{one.error:+.1%}" in tests
        for reason in one.reasons:
            assert reason in tests
    assert tests.count("unknown") == sum(one.drift is None for one in plan.verifications)


def test_two_options_of_one_backend_are_told_apart_and_so_are_their_tests() -> None:
    other = made.onnxruntime(profile="profiles/nx.json", replicas=3)
    tests = (
        made.verification(0.5, 0.05),
        made.verification(0.5, 0.02, profile=other.profile),
    )
    plan = made.plan(options=(made.onnxruntime(), other), chosen=other.profile, verifications=tests)
    labels = labels_of(plan)
    assert len(set(labels)) == 2
    page = render(plan)
    assert page.count(">chosen<") == 1
    headings = re.findall(r'<th scope="row".*?</th>', section(page, "options"), re.S)
    assert [">chosen<" in heading for heading in headings[:2]] == [False, True]
    assert told_of_tests(plan).startswith(f"{labels[1]} was tested on the real server: 1 of 1 ")
    names = {trace.name for trace in fleet_figure(plan).data if trace.name}
    assert names == set(labels)
    measured = [trace for trace in curve_figure(plan).data if (trace.name or "").endswith("ured")]
    assert [trace.name for trace in measured] == [f"{label}, measured" for label in labels]
    assert len({trace.marker.color for trace in measured}) == 2
    rows = text_of(section(page, "tests"))
    for label in labels:
        assert label in rows
        assert escape(label) in markdown(plan)
    assert "…" not in printed(verification_table(tests))


def test_a_burst_in_which_nothing_was_answered_has_no_point_and_says_so() -> None:
    burst = made.triton().burst
    assert burst is not None
    silent = made.triton(burst=burst.model_copy(update={"response_ms": None}))
    plan = made.plan(options=(silent,))
    assert silent.failure is not None
    assert silent.failure.response_ms is None
    assert "nothing answered" in text_of(section(render(plan), "failures"))
    trace = trace_of(stress_figure(plan), "triton")
    assert [STATES[round(x)] for x in trace.x] == ["as planned"]


def test_a_plan_of_plain_requests_speaks_of_no_camera() -> None:
    asked = made.asked(
        demand="Poisson, 240 requests/s", cameras=None, fps=None, link=None, link_sources={}
    )
    options = (made.onnxruntime(frames=None, wire=()), made.triton(wire=()))
    plan = made.plan(asked=asked, options=options, sentence="4 replicas.", command="plan")
    page = render(plan)
    text = text_of(page)
    assert "camera" not in text
    assert "frame" not in text
    assert 'href="#wire"' not in page
    assert "beside the server" in text


def test_the_page_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / NAME
    plan = made.plan()
    assert write_page(path, plan) == path
    assert path.read_text() == render(plan)
    broken = made.plan(asked=made.asked(objective="fast"))
    with pytest.raises(UsageError, match="cannot be read"):
        write_page(path, broken)
    assert path.read_text() == render(plan)
    assert [file.name for file in tmp_path.iterdir()] == [NAME]


def test_the_record_survives_its_file() -> None:
    assert Plan.model_validate_json(made.plan().model_dump_json()) == made.plan()


def printed(*parts: object) -> str:
    console = Console(file=StringIO(), width=80)
    for part in parts:
        console.print(part)
    return console.file.getvalue()  # type: ignore[attr-defined,no-any-return]


def test_the_terminal_shows_every_option_and_test_in_80_columns() -> None:
    plan = made.plan()
    text = printed(answer_text(plan), plan_table(plan), verification_table(plan.verifications))
    assert "…" not in text
    words = " ".join(text.split())
    assert plan.sentence in words
    assert made.fastapi().why in words
    assert words.count("no number") == 1
    for one in plan.verifications:
        assert f"{one.error:+.1%}" in words
        assert all(reason in words for reason in one.reasons)


def test_the_terminal_reads_no_markup_in_names() -> None:
    plan = made.plan(
        options=(made.onnxruntime(backend="[red]onnx", why="[/]"), made.fastapi(why="[bold]x[/]")),
        verifications=(made.verification(0.5, 0.0, backend="[red]onnx", load="[/]"),),
    )
    text = printed(plan_table(plan), verification_table(plan.verifications))
    assert "[red]onnx" in text
    assert "[bold]x[/]" in text


def test_markdown_has_a_row_per_option_and_test_and_reads_no_markup_in_names() -> None:
    plan = made.plan()
    text = markdown(plan)
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 2 * 2 + len(plan.options) + len(plan.verifications)
    assert escape(plan.sentence) in text
    assert "no number" in next(row for row in rows if row.startswith("| fastapi"))
    assert f"fastapi: {made.fastapi().why}" in text
    bare, fence, _ = markdown(wicked()).partition("```")
    assert fence
    assert "<" not in bare
    assert "@" not in bare
