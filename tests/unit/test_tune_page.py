"""The page of a search over settings, and what the command refuses before it starts anything."""

from __future__ import annotations

import json
import re
import sys
from functools import cache
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from loadtest.cli import main
from loadtest.cli.tuning import space_table, tried_table
from loadtest.folder import ResultsFolder
from loadtest.rounding import four_digits
from loadtest.tune.figures import effects_figure, front_figure, path_figure
from loadtest.tune.page import render, write_page
from loadtest.tune.record import NAME, TunedBackend, TuneRecord
from tests import sample_tuning as made
from tests.sample_models import write_tiny


@cache
def backend() -> TunedBackend:
    return made.tuned()


def text_of(page: str) -> str:
    """What is read, without scripts and tags."""
    bare = re.sub(r"<(script|style).*?</\1>", "", page, flags=re.S)
    return " ".join(re.sub(r"<[^>]+>", " ", bare).split())


def test_the_page_tells_the_answer_every_setting_and_what_to_deploy() -> None:
    found = backend()
    text = text_of(render(made.tuning(found)))
    assert found.sentence.replace("<", "&lt;") in text
    for one in found.tried:
        assert one.text in text
        if one.outcome and one.outcome.goodput_rps:
            assert four_digits(one.outcome.goodput_rps) in text
    assert found.deploy is not None
    assert found.deploy.commands[0] in text
    for effect in found.effects:
        assert f"{effect.knob} " in text


def test_what_a_server_printed_is_escaped() -> None:
    page = render(made.tuning(backend()))
    assert "<b>Killed</b>" not in page
    assert "&lt;b&gt;Killed" in page


def test_a_search_that_is_not_finished_says_so_and_chooses_nothing() -> None:
    found = made.tuned(again=False)
    text = text_of(render(made.tuning(found)))
    assert "This search is not finished" in text
    assert "To deploy" not in text
    assert "chosen" not in text


def test_several_backends_are_on_one_page_with_figures_of_their_own() -> None:
    page = render(made.tuning(backend(), made.tuned("fastapi", budget=6)))
    ids = re.findall(r'\bid="([^"]+)"', page)
    assert len(ids) == len(set(ids))
    drawn = re.findall(r'class="plot" id="([^"]+)"', page)
    assert any(name.startswith("b1-") for name in drawn)
    assert any(name.startswith("b2-") for name in drawn)


def test_every_figure_is_data_that_can_be_read() -> None:
    page = render(made.tuning(backend()))
    blocks = re.findall(r'<script type="application/json" id="[^"]+">(.*?)</script>', page, re.S)
    assert len(blocks) == len(backend().costs) + 2
    assert all(json.loads(block)["data"] for block in blocks)


def test_the_front_is_drawn_apart_from_what_is_beaten() -> None:
    found = backend()
    figure = front_figure(found, "p99_ms")
    drawn = {trace.name: len(trace.x) for trace in figure.data if trace.name}
    known = [one for one in found.tried if one.outcome and one.outcome.goodput_rps]
    assert drawn["beaten by another"] == sum(not one.on_front for one in known)
    assert drawn["chosen"] == 1


def test_the_path_has_every_setting_that_told_something_and_the_best_so_far_never_falls() -> None:
    found = backend()
    figure = path_figure(found)
    line, *points = figure.data
    told = [one for one in found.tried if one.outcome and one.outcome.estimate_rps is not None]
    assert sum(len(trace.x) for trace in points) == len(told) == len(line.y)
    assert list(line.y) == sorted(line.y)


def test_the_bars_are_the_losses() -> None:
    figure = effects_figure(backend().effects)
    drawn = {knob: x for trace in figure.data for knob, x in zip(trace.y, trace.x, strict=True)}
    assert drawn == {one.knob: pytest.approx(100 * one.loss) for one in backend().effects}


def test_the_record_survives_its_file(tmp_path: Path) -> None:
    record = made.tuning(backend())
    folder = ResultsFolder(tmp_path)
    folder.write_derived(NAME, record)
    assert folder.read_derived(NAME, TuneRecord) == record
    assert write_page(folder, record).read_text() == render(record)


def test_the_terminal_shows_the_size_of_the_space_and_the_settings_that_were_searched() -> None:
    console = Console(file=StringIO(), width=200)
    console.print(space_table("onnxruntime", made.SPACE))
    console.print(tried_table(backend()))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert made.SPACE.members is not None
    assert f"{len(made.SPACE.members)} settings" in text
    assert "chosen" in text
    assert "max_batch_size" in text


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "no percentile is among the objectives"),
        (["-o", "fast"], "cannot be read"),
        (["-o", "speed<=5ms"], "there is no measure 'speed'"),
        (["-o", "p99<=5ms", "--budget", "0"], "leaves nothing to search with"),
        (["-o", "p99<=5ms", "--budget", "soon"], "neither settings nor a time"),
        (["-o", "p99<=5ms", "--knobs", "speed"], "there is no knob 'speed'"),
        (["-o", "p99<=5ms", "--knobs", ","], "--knobs names none"),
        (["-o", "p99<=5ms", "--backend", "null"], "nothing to turn"),
        (["-o", "p99<=5ms", "--backend", "tritn"], "there is no backend 'tritn'"),
        (["-o", "p99<=5ms", "--repeats", "0"], "--repeats is 0"),
        (["-o", "p99<=5ms", "--oversubscribe", "0"], "--oversubscribe is 0"),
        (["-o", "p99<=5ms", "--accuracy-budget", "2"], "--accuracy-budget is '2'"),
    ],
)
def test_a_mistake_is_one_line_and_overwrites_nothing(
    arguments: list[str],
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "tune.json").write_text("kept")
    write_tiny(tmp_path / "repository")
    given = ["--model", "tiny", "--repository", str(tmp_path / "repository"), "--out", str(out)]
    monkeypatch.setattr(sys, "argv", ["infersweep", "tune", *given, *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == 2
    error = capsys.readouterr().err
    assert told in " ".join(error.split())
    assert "Traceback" not in error
    assert [file.name for file in out.iterdir()] == ["tune.json"]
    assert (out / "tune.json").read_text() == "kept"
