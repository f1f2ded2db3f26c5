"""What a search found, derived from its trials, is told alike in words, table and picture."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs
from rich.console import Console

from loadtest.cli import report
from loadtest.cli.slo import table_of
from loadtest.folder import ResultsFolder
from loadtest.histogram import encode, new_histogram
from loadtest.rounding import four_digits
from loadtest.objective import parse_objectives
from loadtest.results import Histograms, Trial
from loadtest.slo.figure import path_of_probes
from loadtest.slo.measurable import require_measurable
from loadtest.slo.page import render
from loadtest.slo.record import FILE, SearchRecord, record_of
from loadtest.slo.state import CLOSED, State, evidence_of, state_of
from serving.errors import LoadError, MachineError, UsageError
from tests import sample_trials as made
from tests.fake_machine import FakeMachine, FakeNvml

MS = made.MS
SETTINGS: dict[str, object] = {
    "backends": ("onnxruntime",),
    "scenario": "server",
    "level_name": "requests/s",
    "levels": (),
    "repeats": 1,
    "duration_s": 5.0,
    "limit_s": 60.0,
    "objectives": ("p90<=50ms",),
}


Kept = tuple[Trial, Histograms]


def closed(users: int, latency_ms: float, **changes: object) -> Kept:
    """Two seconds of ``users`` that each send as soon as they have their answer."""
    count = int(users * 2000 / latency_ms)
    given = {"scenario": CLOSED, "ceiling_rps": 20_000.0, **changes}
    return made.trial("onnxruntime", users, 0, [round(latency_ms * MS)] * count, **given)


def probe(number: int, rate: float, latency_ms: float, **changes: object) -> Kept:
    given = {"scenario": "server", **changes}
    return made.trial("onnxruntime", rate, number, [round(latency_ms * MS)] * 400, **given)


FAST = (closed(1, 5.0), closed(16, 80.0))
"""200 requests/s one at a time and together."""


def state(*probes: Kept, bracket: Sequence[Kept] = FAST, **changes: object) -> State:
    seen = [evidence_of(*kept) for kept in (*bracket, *probes)]
    return state_of(made.settings(**{**SETTINGS, **changes}), seen)


def record(found: State, **changes: object) -> SearchRecord:
    return record_of(made.manifest(**{**SETTINGS, **changes}), found)


WHOLE = (
    probe(1, 100.0, 20.0),
    probe(2, 125.0, 90.0, cut="30 requests took longer than 50 ms"),
    probe(3, 111.8, 90.0),
    probe(4, 105.7, 40.0),
    probe(5, 108.7, 90.0),
    probe(6, 108.7, 90.0),
)


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
    assert "There is no probe to draw." in render(found)
    assert table_of(found).row_count == 0


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
    from tests.unit.test_objective import role, used

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
    drawn = json.loads(path_of_probes(record(state(*WHOLE))).to_json())["data"]
    traces = {trace["name"]: trace for trace in drawn if "name" in trace}
    assert [text.strip() for text in traces["met"]["text"]] == ["1", "4"]
    assert [text.strip() for text in traces["missed"]["text"]] == ["3", "5", "6"]
    assert [text.strip() for text in traces["missed, ended early"]["text"]] == ["2"]
    assert traces["objective, 50.0 ms"]["y"] == [50.0, 50.0]


def test_both_axes_are_logarithmic_and_have_ticks_to_read() -> None:
    layout = path_of_probes(record(state(*WHOLE))).layout
    for axis in (layout.xaxis, layout.yaxis):
        assert axis.type == "log"
        low, high = (10**end for end in axis.range)
        assert sum(low <= tick <= high for tick in axis.tickvals) >= 3


def test_the_page_shows_every_probe_and_fetches_nothing() -> None:
    page = render(record(state(*WHOLE)))
    own = page.replace(get_plotlyjs(), "")
    assert own.count('<span class="badge failed">missed</span>') == 4
    assert own.count("<small>ended early</small>") == 1
    assert "prefers-color-scheme: dark" in own
    assert 'role="img"' in own
    assert "default-src 'none'" in own
    assert "http://" not in own
    assert "https://" not in own


def test_what_a_user_wrote_cannot_become_markup() -> None:
    wicked = 'remote:http://"><script>alert(1)</script>'
    page = render(record(state(*WHOLE), backends=(wicked,), model="<b>m</b>"))
    assert "<script>alert(1)" not in page
    assert "<b>m</b>" not in page


def test_the_terminal_has_a_row_per_window_in_eighty_columns() -> None:
    console = Console(file=StringIO(), width=80)
    console.print(table_of(record(state(*WHOLE))))
    told = console.file.getvalue()  # type: ignore[attr-defined]
    assert "16 at once" in told
    assert told.count("missed") == 4
    assert told.count("(early end)") == 1
    assert "20.0 (20.0-20.0)" in told


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
    for kept in (*FAST, *WHOLE):
        folder.append_trial(*kept)
    assert report.run(folder.path) == 0
    assert folder.read_derived(FILE, SearchRecord) == record(state(*WHOLE))
    assert "up to 105.7 requests/s and not at 108.7" in capsys.readouterr().out
    assert (folder.path / "search.html").is_file()
    assert not (folder.path / "summary.json").exists()


@pytest.mark.parametrize(
    ("rate_rps", "text"), [(9.08, "9.08"), (105.7, "105.7"), (1041.0, "1,041"), (27300.0, "27,300")]
)
def test_a_rate_is_written_without_powers_of_ten(rate_rps: float, text: str) -> None:
    assert four_digits(rate_rps) == text
