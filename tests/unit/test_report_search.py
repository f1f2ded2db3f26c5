"""What searches found, derived from their trials, is told alike in words, table and picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs
from rich.console import Console

from loadtest.cli import report
from loadtest.folder import ResultsFolder
from loadtest.histogram import encode, new_histogram
from loadtest.objective import parse_objectives
from loadtest.report.answer import answer_of
from loadtest.report.drawn import figures_of
from loadtest.report.load_figures import latency_against_load
from loadtest.report.markdown import markdown
from loadtest.report.page import render
from loadtest.report.search_path import path_of_probes
from loadtest.report.terminal import summary_table
from loadtest.results import Histograms, Summary, Trial
from loadtest.rounding import four_digits
from loadtest.searched import SearchRecord
from loadtest.slo.measurable import require_measurable
from loadtest.slo.record import record_of
from loadtest.slo.state import CLOSED, State, evidence_of, state_of
from loadtest.summary import summarise
from serving.errors import LoadError, MachineError, UsageError
from tests import sample_trials as made
from tests.fake_machine import FakeMachine, FakeNvml
from tests.unit.test_objective import role, used

MS = made.MS
LABEL = "onnxruntime"
SETTINGS: dict[str, object] = {
    "backends": (LABEL,),
    "scenario": "server",
    "level_name": "requests/s",
    "levels": (),
    "repeats": 1,
    "duration_s": 5.0,
    "limit_s": 60.0,
    "slo_ms": 50.0,
    "objectives": ("p90<=50ms",),
}


Kept = tuple[Trial, Histograms]


def closed(users: int, latency_ms: float, **changes: object) -> Kept:
    """Two seconds of ``users`` that each send as soon as they have their answer."""
    count = int(users * 2000 / latency_ms)
    given = {"scenario": CLOSED, "ceiling_rps": 20_000.0, "probe": 0, **changes}
    return made.trial(LABEL, users, 1, [round(latency_ms * MS)] * count, **given)


def probe(number: int, rate: float, latency_ms: float, **changes: object) -> Kept:
    given = {"scenario": "server", "probe": number, "id": f"r1-p{number}", **changes}
    return made.trial(LABEL, rate, 1, [round(latency_ms * MS)] * 400, **given)


FAST = (closed(1, 5.0), closed(16, 80.0))
"""200 requests/s one at a time and together."""


def state(*probes: Kept, bracket: Sequence[Kept] = FAST, **changes: object) -> State:
    seen = [evidence_of(*kept) for kept in (*bracket, *probes)]
    return state_of(made.settings(**{**SETTINGS, **changes}), seen, LABEL)


def record(found: State) -> SearchRecord:
    return record_of(found)


WHOLE = (
    probe(1, 100.0, 20.0),
    probe(2, 125.0, 90.0, cut="30 requests took longer than 50 ms"),
    probe(3, 111.8, 90.0),
    probe(4, 105.7, 40.0),
    probe(5, 108.7, 90.0),
    probe(6, 108.7, 90.0),
)


def summary(*probes: Kept, bracket: Sequence[Kept] = FAST, **changes: object) -> Summary:
    """Of a folder with these windows, as every command derives it."""
    kept = {trial.id: (trial, histograms) for trial, histograms in (*bracket, *probes)}
    return summarise(
        made.manifest(**{**SETTINGS, **changes}),
        {LABEL: made.record(LABEL)},
        [trial for trial, _ in kept.values()],
        lambda name: kept[name][1],
    )


def again(kept: Sequence[Kept], repeat: int, faster: float) -> list[Kept]:
    """The same probes in a later search, at other rates."""
    return [
        (
            trial.model_copy(
                update={
                    "id": f"r{repeat}-p{trial.probe}",
                    "repeat": repeat,
                    "level": trial.level * faster,
                }
            ),
            histograms,
        )
        for trial, histograms in kept
    ]


THREE = (*WHOLE, *again(WHOLE, 2, 1.04), *again(WHOLE, 3, 0.98))
"""Three searches; they find 105.7, 4% more and 2% less."""


def test_the_answer_follows_from_the_trials_alone() -> None:
    found = record(state(*WHOLE))
    assert found.complete
    verdicts = [probe.verdict for probe in found.probes]
    assert verdicts == ["met", "missed", "missed", "met", "missed", "missed"]
    assert found.answer.sentence == (
        "onnxruntime meets p90<=50ms up to 105.7 requests/s and not at 108.7, 2.8% more."
    )
    assert found.answer.best_seen is None
    assert [p.number for p in found.probes if p.cut] == [2]


def test_a_path_without_its_end_is_told_as_such() -> None:
    found = record(state(*WHOLE[:3]))
    assert not found.complete
    assert found.answer.kind == "open"
    assert found.answer.sentence.endswith("The search is not complete.")


def test_before_any_probe_there_is_no_answer_yet() -> None:
    found = record(state(bracket=()))
    assert found.answer.sentence.startswith("No answer yet")
    begun = summary(bracket=FAST[:1])
    assert answer_of(begun).label == "No full answer"
    page = render(begun)
    assert "There is no probe to draw." in page
    assert "This run is incomplete" in page


def test_not_reachable_names_the_reason_and_the_best_that_was_seen() -> None:
    slow = (closed(1, 60.0), closed(16, 900.0))
    found = record(state(probe(1, 9.08, 61.0, cut="4 wait longer"), bracket=slow))
    assert found.answer.kind == "not reachable"
    assert found.answer.sentence == (
        "Not reachable: onnxruntime met p90<=50ms at no rate that was probed. One request at a "
        "time misses already, so no lower rate can help. The best seen: p90 60 ms with 1 at a time."
    )


def test_a_bare_server_that_was_not_steady_proves_nothing() -> None:
    unsteady = closed(1, 60.0, verdict="INVALID", reasons=["not steady: between 1 and 9"])
    assert not state(bracket=(unsteady, closed(16, 900.0))).search.scope.hopeless


def test_memory_that_the_bare_server_exceeds_is_hopeless_too() -> None:
    use = used(roles=role(None, 500 * 10**6))
    big = (closed(1, 5.0, resources=use), closed(16, 80.0))
    asked = {"objectives": ("p90<=50ms", "memory<=400MB")}
    assert state(bracket=big, **asked).search.scope.hopeless
    small = {"objectives": ("p90<=50ms", "memory<=600MB")}
    assert not state(bracket=big, **small).search.scope.hopeless


def test_what_turns_out_unmeasurable_ends_the_search_before_its_first_probe() -> None:
    with pytest.raises(LoadError, match="memory<=400MB cannot be held against anything"):
        _ = state(objectives=("p90<=50ms", "memory<=400MB")).search


def test_a_server_without_one_answer_is_no_search() -> None:
    trial, _ = closed(1, 5.0, verdict="INVALID", reasons=["9 requests were lost"])
    empty = Histograms(
        trial=trial.id,
        response_time=(),
        service_time=(),
        lateness=encode(new_histogram()),
        first_byte=encode(new_histogram()),
    )
    none = trial, empty
    with pytest.raises(LoadError, match="got no answer: 9 requests were lost"):
        _ = state(bracket=(none, closed(16, 80.0))).search


def test_the_figure_numbers_each_probe_and_marks_what_was_ended_early() -> None:
    drawn = json.loads(path_of_probes([record(state(*WHOLE))]).to_json())["data"]
    traces = {trace["name"]: trace for trace in drawn if "name" in trace}
    assert [text.strip() for text in traces["met"]["text"]] == ["1", "4"]
    assert [text.strip() for text in traces["missed"]["text"]] == ["3", "5", "6"]
    assert [text.strip() for text in traces["missed, ended early"]["text"]] == ["2"]
    assert traces["objective, 50.0 ms"]["y"] == [50.0, 50.0]


def test_later_searches_are_small_points_and_a_band_spans_what_all_found() -> None:
    searches = summary(*THREE, repeats=3).searches
    assert [search.repeat for search in searches] == [1, 2, 3]
    figure = path_of_probes(searches)
    first, later = (one for one in figure.data if one.name == "met")
    assert list(first.x) == [100.0, 105.7]
    assert sorted(later.x) == sorted(x * k for x in (100.0, 105.7) for k in (1.04, 0.98))
    assert (later.mode, later.showlegend) == ("markers", False)
    assert later.marker.size < first.marker.size
    (band,) = figure.layout.shapes
    assert (band.x0, band.x1) == (105.7 * 0.98, 105.7 * 1.04)


def test_both_axes_are_logarithmic_and_have_ticks_to_read() -> None:
    layout = path_of_probes([record(state(*WHOLE))]).layout
    for axis in (layout.xaxis, layout.yaxis):
        assert axis.type == "log"
        low, high = (10**end for end in axis.range)
        assert sum(low <= tick <= high for tick in axis.tickvals) >= 3


def test_the_found_rate_stands_on_the_objective_with_its_range() -> None:
    figure = latency_against_load(summary(*THREE, repeats=3))
    star = next(one for one in figure.data if one.marker.symbol == "star")
    assert (list(star.x), list(star.y)) == ([105.7], [50.0])
    assert star.x[0] + star.error_x.array[0] == pytest.approx(105.7 * 1.04)
    assert star.x[0] - star.error_x.arrayminus[0] == pytest.approx(105.7 * 0.98)


def test_figures_over_levels_are_left_out_of_a_search() -> None:
    assert [figure.id for figure in figures_of(summary(*WHOLE))] == [
        *("latency-load", "spectrum", "heatmap"),
    ]


def test_the_page_shows_every_search_and_every_probe() -> None:
    page = render(summary(*THREE, repeats=3)).replace(get_plotlyjs(), "")
    section = page[page.index('<section id="search"') : page.index('<section id="verdicts"')]
    assert section.count('<span class="badge failed">missed</span>') == 3 * 4
    assert section.count("<small>ended early</small>") == 3
    assert section.count('<span class="badge winner">Found</span>') == 3
    assert section.count("16 at a time") == 1
    assert "Every probe of onnxruntime (18)" in section
    assert "105.7 · 109.9 · 103.6" in page


def test_a_single_backend_is_answered_by_its_search() -> None:
    assert answer_of(summary(*WHOLE)).label == "Found"
    slow = (closed(1, 60.0), closed(16, 900.0))
    lost = summary(probe(1, 9.08, 61.0, cut="4 wait longer"), bracket=slow)
    assert answer_of(lost).label == "Not reachable"
    page = render(lost)
    assert "One request at a time misses already" in page
    assert '<span class="badge none">Not reachable</span>' in page


def test_a_void_probe_is_among_what_does_not_count() -> None:
    void = probe(3, 111.8, 20.0, verdict="INVALID", reasons=["client-bound: late"])
    page = render(summary(*WHOLE[:2], void))
    section = page[page.index('<section id="verdicts"') : page.index('<section id="footprint"')]
    assert "onnxruntime, search 1, probe 3 at 111.8 requests/s" in section
    assert "client-bound: late" in section


def test_what_a_user_wrote_cannot_become_markup() -> None:
    wicked = "<b>m</b>|`x`"
    found = summary(*WHOLE, model=wicked)
    for text in (render(found), markdown(found)):
        assert "<b>m</b>" not in text
    assert "|`x`" not in markdown(found)


def test_the_terminal_has_a_row_per_backend_in_eighty_columns() -> None:
    out = StringIO()
    Console(file=out, width=80).print(summary_table(summary(*WHOLE)))
    (row,) = [line for line in out.getvalue().splitlines() if LABEL in line]
    assert row.split() == [LABEL, "105.7", "108.7", "-", "6", "found"]


def test_the_terminal_has_the_range_of_several_searches() -> None:
    out = StringIO()
    Console(file=out, width=80).print(summary_table(summary(*THREE, repeats=3)))
    (row,) = [line for line in out.getvalue().splitlines() if LABEL in line]
    assert row.split() == [LABEL, "105.7", "103.6-109.9", "-", "18", "3", "found"]


def test_a_limit_that_is_no_shorter_than_the_timeout_is_refused() -> None:
    with pytest.raises(UsageError, match="no shorter than the timeout of 10 s"):
        require_measurable(parse_objectives(["p99<=10s"]), "onnxruntime", 10.0)


def test_joules_are_refused_without_a_rail_and_welcome_with_one(tmp_path: Path) -> None:
    machine, asked = FakeMachine(tmp_path), parse_objectives(["p99<=50ms, joules<=1J"])
    with pytest.raises(MachineError, match="energy cannot be measured here: no RAPL"):
        require_measurable(asked, "onnxruntime", 10.0, machine.roots, FakeNvml([]))
    machine.rapl("intel-rapl:0", "package-0", 5_000_000)
    require_measurable(asked, "onnxruntime", 10.0, machine.roots, FakeNvml([]))


def test_report_derives_a_search_again_from_its_trials(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ResultsFolder(tmp_path / "out")
    folder.write_manifest(made.manifest(**SETTINGS))
    folder.write_backend(made.record(LABEL))
    for kept in (*FAST, *WHOLE):
        folder.append_trial(*kept)
    assert report.run(folder.path) == 0
    assert folder.read_summary().searches == (record(state(*WHOLE)),)
    assert "up to 105.7 requests/s and not at 108.7" in capsys.readouterr().out
    assert folder.report.is_file()
    assert report.run(folder.path, markdown_only=True) == 0
    assert capsys.readouterr().out == markdown(folder.read_summary())


@pytest.mark.parametrize(
    ("rate_rps", "text"), [(9.08, "9.08"), (105.7, "105.7"), (1041.0, "1,041"), (27300.0, "27,300")]
)
def test_a_rate_is_written_without_powers_of_ten(rate_rps: float, text: str) -> None:
    assert four_digits(rate_rps) == text
