"""``infersweep export``, and what is refused before a run is loaded into Prometheus."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from loadtest.cli import main
from loadtest.cli.export import FORMATS
from loadtest.folder import ResultsFolder
from loadtest.observing.blocks import load_runs
from serving.errors import MachineError, ResultsError, UsageError
from tests import sample_trials as made
from tests.sample_runs import small_run, text_of


def export(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr(sys, "argv", ["infersweep", "export", *arguments])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def test_the_command_writes_into_the_folder_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_run(tmp_path / "run")
    for _ in range(2):
        assert export(monkeypatch, str(folder.path), "--to", "openmetrics") == 0
    assert (folder.path / "openmetrics.txt").read_bytes().decode() == text_of(folder)
    assert not list(folder.path.glob(".*"))


def test_the_command_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    folder = small_run(tmp_path / 'a "run"')
    assert export(monkeypatch, str(folder.path), "--to", "openmetrics", "--out", "-") == 0
    assert capfdbinary.readouterr().out.decode() == text_of(folder)


def test_a_file_of_somebody_s_own_is_replaced_only_when_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, out = small_run(tmp_path / "run"), tmp_path / "thesis.txt"
    out.write_text("three years of work")
    arguments = (str(folder.path), "--to", "openmetrics", "--out", str(out))
    assert export(monkeypatch, *arguments) == UsageError.exit_code
    assert out.read_text() == "three years of work"
    assert "--force" in capsys.readouterr().err
    assert export(monkeypatch, *arguments, "--force") == 0
    assert out.read_text() == text_of(folder)


def test_an_export_that_fails_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_run(tmp_path / "run")
    old = folder.path / "openmetrics.txt"
    old.write_text("old")
    (histograms,) = (folder.path / "histograms").iterdir()
    histograms.unlink()
    status = export(monkeypatch, str(folder.path), "--to", "openmetrics")
    assert status == ResultsError.exit_code
    assert old.read_text() == "old"
    assert not list(folder.path.glob(".*"))


@pytest.mark.parametrize(
    ("arguments", "status", "told"),
    [
        (["run", "--to", "xml"], UsageError.exit_code, "Choose openmetrics"),
        (["none", "--to", "openmetrics"], ResultsError.exit_code, "does not exist"),
        (
            ["run", "--to", "openmetrics", "--out", "none/file"],
            MachineError.exit_code,
            "was not written",
        ),
        (
            ["run", "--to", "openmetrics", "--out", "run/manifest.json/file"],
            MachineError.exit_code,
            "was not written",
        ),
    ],
)
def test_mistakes(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    status: int,
    told: str,
) -> None:
    small_run(tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert export(monkeypatch, *arguments) == status
    said = capsys.readouterr().err
    assert told in said
    assert "Traceback" not in said


def test_each_format_has_a_file_of_its_own() -> None:
    files = [chosen.file_name for chosen in FORMATS.values()]
    assert len(set(files)) == len(files)


def test_two_runs_of_one_name_are_not_loaded_together(tmp_path: Path) -> None:
    one, other = small_run(tmp_path / "a" / "run"), ResultsFolder(tmp_path / "b" / "run")
    small_run(other.path)
    later = made.manifest().model_copy(update={"created": "2027-01-01T00:00:00+00:00"})
    other.write_manifest(later)
    with pytest.raises(UsageError, match="two runs are called 'run'"):
        load_runs([one.path, other.path], tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_without_promtool_the_way_to_get_it_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small_run(tmp_path / "run")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(MachineError, match="apt install prometheus") as caught:
        load_runs([folder.path], tmp_path / "data")
    assert "infersweep export" in str(caught.value)
    assert not (tmp_path / "data").exists()


def test_nothing_to_load_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no run to load"):
        load_runs([], tmp_path / "data")
