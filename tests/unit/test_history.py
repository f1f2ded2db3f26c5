"""The history shows every run in its order, joins only like with like, and survives damage."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from plotly.offline import get_plotlyjs

from loadtest.cli import main
from loadtest.folder import ResultsFolder
from loadtest.history.figure import figure_of, title_of
from loadtest.history.page import picture, render
from loadtest.history.runs import History, read_history
from loadtest.measures import MEASURES
from loadtest.summary import summarise
from serving.errors import MachineError, ResultsError, UsageError
from tests import sample_trials as made
from tests.sample_folders import energy, finished

RATES = (1000.0, 1010.0, 980.0)
HOSTILE = "</script><b>&'\""


def run_of(path: Path, day: int, commit: str | None = None, **changes: object) -> ResultsFolder:
    known = {"created": f"2026-05-{day:02}T12:00:00+00:00", "commit": commit or f"c{day}"}
    manifest = {**known, **changes.pop("manifest", {})}  # type: ignore[dict-item]
    return finished(path, changes.pop("rates", RATES), manifest=manifest, **changes)  # type: ignore[arg-type]


def history(*folders: Path, metric: str = "throughput") -> History:
    return read_history(folders, MEASURES[metric])


def history_command(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["infersweep", "history", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_runs_stand_in_the_order_in_which_they_were_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each once, though named twice, and nothing that lies inside one."""
    own = run_of(tmp_path / "a", 3).path / "model_repository"
    own.mkdir()
    (own / "manifest.json").write_text("{}")
    run_of(tmp_path / "deep" / "b", 1)
    # An hour later by the clock on the wall, two hours earlier in truth.
    run_of(tmp_path / "c", 3, manifest={"created": "2026-05-03T13:00:00+03:00", "commit": "c2"})
    monkeypatch.chdir(tmp_path)
    found = history(tmp_path, Path("a"))
    assert not found.unreadable
    (group,) = found.groups
    assert [run.commit for run in group.runs] == ["c1", "c2", "c3"]
    (one,) = group.runs[0].found
    assert (one.value, one.low, one.high) == (1000.0, 980.0, 1010.0)
    assert one.verdict == "VALID"
    assert group.runs[0].complete


def test_outside_a_checkout_the_version_stands_for_the_commit(tmp_path: Path) -> None:
    finished(tmp_path / "a", RATES)
    assert history(tmp_path).groups[0].runs[0].commit == "v0.1.0"


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"machine": {"hostname": "other"}}, "tiny on other"),
        ({"machine": {"usable_cpus": 64}}, "usable CPUs 64"),
        ({"encoding": "json"}, "encoding json"),
        ({"model": "larger"}, "larger on host"),
    ],
)
def test_unlike_runs_are_never_joined(
    tmp_path: Path, changes: dict[str, object], told: str
) -> None:
    run_of(tmp_path / "a", 1)
    run_of(tmp_path / "b", 2, **changes)
    run_of(tmp_path / "c", 3)
    found = history(tmp_path)
    assert [[run.commit for run in group.runs] for group in found.groups] == [["c1", "c3"], ["c2"]]
    assert told in title_of(found.groups[1], found)
    assert title_of(found.groups[0], found) != title_of(found.groups[1], found)
    axes = [(trace.xaxis, trace.yaxis, list(trace.x)) for trace in figure_of(found).data]
    assert axes == [("x", "y", [0, 1]), ("x2", "y2", [0])]


def test_a_line_ends_where_another_server_begins(tmp_path: Path) -> None:
    for day, provider in enumerate(("CPU", "CUDA", "CUDA"), 1):
        folder = run_of(tmp_path / str(day), day)
        folder.write_backend(made.record("triton", facts={"provider": provider}))
    (group,) = history(tmp_path).groups
    lines = {key[2]: [place for place, _ in line] for key, line in group.series.items()}
    assert lines == {("CPU",): [0], ("CUDA",): [1, 2]}
    names = [trace.name for trace in figure_of(history(tmp_path)).data]
    assert names == ["triton, 4 users, CPU", "triton, 4 users, CUDA"]


def test_energy_of_other_rails_is_another_line(tmp_path: Path) -> None:
    for day, rail in enumerate(("psys", "nvml:gpu0"), 1):
        run_of(tmp_path / str(day), day, trial={"resources": energy(2.0, rail)})
    (group,) = history(tmp_path, metric="joules").groups
    assert [key[2] for key in group.series] == [("nvml:gpu0",), ("psys",)]


def test_another_checksum_is_the_same_line(tmp_path: Path) -> None:
    run_of(tmp_path / "a", 1)
    run_of(tmp_path / "b", 2, manifest={"model_sha256": "1" * 64})
    (group,) = history(tmp_path).groups
    assert len(group.series) == 1


def test_a_percentile_is_the_report_s(tmp_path: Path) -> None:
    """From all repeats together, whether the summary is there, old, or not."""
    latencies = [[n * made.MS] * 20 for n in (1, 2, 3)]
    folder = run_of(tmp_path / "a", 1, latencies_ns=latencies)

    def found() -> tuple[float | None, float | None, float | None]:
        (one,) = history(tmp_path, metric="p50").groups[0].runs[0].found
        return one.value, one.low, one.high

    summary = summarise(
        folder.read_manifest(),
        folder.read_backends(),
        folder.read_trials(),
        folder.read_histograms,
    )
    p50 = summary.backends[0].points[0].response_time_ms.p50
    assert p50 is not None
    assert p50.value_ms == pytest.approx(2, rel=2e-3)
    assert found() == (p50.value_ms, p50.low_ms, p50.high_ms)
    text = summary.model_dump_json().replace(f"{p50.value_ms!r}", "7.0")
    (folder.path / "summary.json").write_text(text)
    assert found()[0] == 7.0
    (folder.path / "summary.json").write_text(
        text.replace('"finished_trials":3', '"finished_trials":2')
    )
    assert found()[0] == p50.value_ms


def test_what_is_not_known_says_why(tmp_path: Path) -> None:
    run_of(tmp_path / "a", 1)
    for metric, why in (("joules", "no energy was sampled"), ("p99", "too few samples")):
        found = history(tmp_path, metric=metric)
        (one,) = found.groups[0].runs[0].found
        assert (one.value, one.why) == (None, why)
        assert why in own_text(render(found))


def test_an_invalid_point_is_hollow(tmp_path: Path) -> None:
    run_of(tmp_path / "a", 1)
    run_of(tmp_path / "b", 2, trial={"verdict": "INVALID"})
    (trace,) = figure_of(history(tmp_path)).data
    assert list(trace.marker.symbol) == ["circle", "circle-open"]
    assert list(trace.error_y.array) == [10.0, 10.0]
    assert list(trace.error_y.arrayminus) == [20.0, 20.0]


def _cut(folder: ResultsFolder) -> None:
    (folder.path / "manifest.json").write_text('{"schema_version": 3, "created"')


def _newer(folder: ResultsFolder) -> None:
    folder.write_manifest(made.manifest().model_copy(update={"schema_version": 99}))


def _odd_version(folder: ResultsFolder) -> None:
    (folder.path / "manifest.json").write_text('{"schema_version": "3"}')


def _no_date(folder: ResultsFolder) -> None:
    folder.write_manifest(made.manifest().model_copy(update={"created": "yesterday"}))


def _no_text(folder: ResultsFolder) -> None:
    (folder.path / "trials.jsonl").write_bytes(b"\xff\xfe\n")


def _no_trials(folder: ResultsFolder) -> None:
    (folder.path / "trials.jsonl").unlink()


def _no_manifest(folder: ResultsFolder) -> None:
    (folder.path / "manifest.json").unlink()


def _no_outcome(folder: ResultsFolder) -> None:
    trials = folder.path / "trials.jsonl"
    trials.write_text(trials.read_text().replace('"ok"', '"fine"'))


@pytest.mark.parametrize(
    "damage",
    [_cut, _newer, _odd_version, _no_date, _no_text, _no_trials, _no_manifest, _no_outcome],
)
def test_a_damaged_folder_is_listed_with_its_reason(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damage: Callable[[ResultsFolder], None],
) -> None:
    run_of(tmp_path / "whole", 1)
    damage(run_of(tmp_path / "damaged", 2))
    found = history(tmp_path)
    assert [run.commit for group in found.groups for run in group.runs] == ["c1"]
    ((path, reason),) = found.unreadable.items()
    assert path == tmp_path / "damaged"
    assert reason
    assert history_command(monkeypatch, str(tmp_path)) == 0
    told = capsys.readouterr()
    assert f"left out: {path}: {reason}" in told.out
    assert "Traceback" not in told.err


def test_an_unfinished_run_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = run_of(tmp_path / "a", 1)
    trials = folder.path / "trials.jsonl"
    trials.write_text("".join(trials.read_text().splitlines(keepends=True)[:2]))
    assert history_command(monkeypatch, str(tmp_path)) == 0
    assert f"{folder.path}  unfinished" in capsys.readouterr().out


def own_text(page: str) -> str:
    """The page without Plotly's source."""
    assert page.count(get_plotlyjs()) == 1
    return page.replace(get_plotlyjs(), "")


def test_the_page_fetches_nothing_and_escapes_what_a_user_wrote(tmp_path: Path) -> None:
    run_of(
        tmp_path / "a",
        1,
        commit=HOSTILE,
        backends=(HOSTILE,),
        model=HOSTILE,
        machine={"hostname": HOSTILE},
    )
    page = own_text(render(history(tmp_path)))
    assert HOSTILE not in page
    assert page.count("</script>") == 3
    assert "default-src 'none'" in page
    assert not re.search(r"""(?:src|href)\s*=\s*["']?\s*(?:https?:)?//""", page)
    data = re.search(r'<script type="application/json" id="history-data">(.*?)</script>', page)
    assert data
    assert "<" not in data[1]
    figure = json.loads(data[1])
    assert len(figure["data"]) == 1
    assert "<b>&" not in figure["data"][0]["name"]


def test_the_command_writes_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run_of(tmp_path / "results" / "a", 1)
    monkeypatch.chdir(tmp_path)
    assert history_command(monkeypatch, "--out", "history.html") == 0
    assert (tmp_path / "history.html").read_text() == render(history(Path("results")))
    told = capsys.readouterr().out
    for text in ("c1", "2026-05-01", "tiny on host", "triton, 4 users", "1,000", "980 to 1,010"):
        assert text in told


def test_without_kaleido_the_extra_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_of(tmp_path / "a", 1)
    monkeypatch.setitem(sys.modules, "kaleido", None)
    with pytest.raises(MachineError, match=r"a PNG needs kaleido.*infersweep\[export\]"):
        picture(history(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (("none",), ResultsError.exit_code, "none is no folder"),
        (("empty",), ResultsError.exit_code, "there are no results below empty"),
        (("--metric", "speed", "empty"), UsageError.exit_code, "there is no metric 'speed'"),
        (("--out", "x.pdf", "empty"), UsageError.exit_code, "End it in .html or .png"),
        (("damaged",), ResultsError.exit_code, "none of these runs can be read"),
        (("whole", "--out", "no/x.html"), MachineError.exit_code, "was not written"),
    ],
)
def test_mistakes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: tuple[str, ...],
    status: int,
    told: str,
) -> None:
    (tmp_path / "empty").mkdir()
    _cut(run_of(tmp_path / "damaged", 1))
    run_of(tmp_path / "whole", 1)
    monkeypatch.chdir(tmp_path)
    assert history_command(monkeypatch, *arguments) == status
    said = capsys.readouterr().err
    assert told in said
    assert said.count("\n") == 1
