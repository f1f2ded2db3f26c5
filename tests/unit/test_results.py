"""The results folder: what a kill may leave behind, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadtest.folder import ResultsFolder
from loadtest.results import SCHEMA_VERSION
from serving.errors import ResultsError
from tests import sample_trials as made


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    folder.write_manifest(made.manifest())
    folder.write_backend(made.record("fastapi:torch"))
    trial, histograms = made.trial("a", 1, 1, [made.MS] * 9)
    folder.append_trial(trial, histograms)
    assert folder.read_manifest() == made.manifest()
    assert folder.read_backends() == {"fastapi:torch": made.record("fastapi:torch")}
    assert folder.read_trials() == [trial]
    assert folder.read_histograms(trial.id) == histograms


def test_a_half_written_trial_does_not_count_and_does_not_spoil_the_next(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    first, histograms = made.trial("a", 1, 1, [made.MS] * 9)
    folder.append_trial(first, histograms)
    path = tmp_path / "trials.jsonl"
    path.write_bytes(path.read_bytes() + b'{"id": "a-l1-r2", "back')
    assert folder.read_trials() == [first]
    folder.drop_half_written()
    second, histograms = made.trial("a", 1, 2, [made.MS] * 9)
    folder.append_trial(second, histograms)
    assert folder.read_trials() == [first, second]


def test_results_from_before_frames_could_be_dropped_are_read(tmp_path: Path) -> None:
    folder = ResultsFolder(tmp_path)
    trial, histograms = made.trial("a", 1, 1, [made.MS] * 9)
    folder.append_trial(trial, histograms)
    for path, gone in (
        (folder.trials, "frames"),
        (tmp_path / f"histograms/{trial.id}.json", "ages"),
    ):
        written = json.loads(path.read_text())
        del written[gone]
        written.get("outcomes", {}).pop("dropped", None)
        path.write_text(json.dumps(written) + "\n")
    assert folder.read_trials() == [trial]
    assert folder.read_histograms(trial.id) == histograms


def test_a_newer_schema_is_refused(tmp_path: Path) -> None:
    newer = {"schema_version": SCHEMA_VERSION + 1}
    (tmp_path / "summary.json").write_text(json.dumps(newer))
    with pytest.raises(ResultsError, match="schema version"):
        ResultsFolder(tmp_path).read_summary()


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema_version": 1}'])
def test_a_damaged_file_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ResultsError) as caught:
        ResultsFolder(tmp_path).read_manifest()
    assert "\n" not in str(caught.value)


def test_a_missing_folder_is_told(tmp_path: Path) -> None:
    with pytest.raises(ResultsError, match="does not exist"):
        ResultsFolder(tmp_path / "none").read_manifest()
