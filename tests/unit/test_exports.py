"""Every format is read back by a reader that is not ours, and holds what the run holds."""

from __future__ import annotations

import csv
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hdrh.log import HistogramLogReader
from pyarrow import parquet
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import plugin_data_pb2

from loadtest.analysis import QUANTILES, percentiles_ms, samples_of
from loadtest.cli import main
from loadtest.exporting import FORMATS, FolderFormat
from loadtest.exporting.tensorboard import METRICS
from loadtest.folder import ResultsFolder
from loadtest.histogram import merge, new_histogram
from loadtest.resources.record import GpuUse, ResourceUse, RoleUse
from loadtest.results import OUTCOMES, Trial
from serving.errors import MachineError, ResultsError, UsageError
from tests import sample_trials as made
from tests.sample_folders import energy, finished
from tests.sample_runs import START_S, measure, new_run

LATENCIES_NS = [[n * made.MS] * 20 for n in (1, 2)]
RATES = (10.0, 10.0)


def export(monkeypatch: pytest.MonkeyPatch, *arguments: object) -> int:
    monkeypatch.setattr(sys, "argv", ["infersweep", "export", *map(str, arguments)])
    with pytest.raises(SystemExit) as left:
        main()
    return int(left.value.code or 0)


def written(monkeypatch: pytest.MonkeyPatch, folder: ResultsFolder, name: str) -> Path:
    assert export(monkeypatch, folder.path, "--to", name) == 0
    return folder.path / FORMATS[name].file_name


def small(tmp_path: Path, **changes: object) -> ResultsFolder:
    return finished(tmp_path / "run", RATES, latencies_ns=LATENCIES_NS, **changes)  # type: ignore[arg-type]


def rows_of(path: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(path.read_text())
    return found


HOSTILE = 'a "b", c;\n=d'


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> ResultsFolder:
    """Two backends with two repeats each, as three tables."""
    folder = small(
        tmp_path_factory.mktemp("exported"),
        backends=("triton", "fastapi"),
        machine={"cpu_model": HOSTILE},
    )
    first, second, *_ = (folder.read_histograms(trial.id) for trial in folder.read_trials())
    unlike = first.model_copy(update={"service_time": second.service_time})
    (folder.path / "histograms" / f"{first.trial}.json").write_text(unlike.model_dump_json())
    with pytest.MonkeyPatch.context() as patch:
        for name in ("json", "csv", "parquet"):
            written(patch, folder, name)
    return folder


def test_json_has_a_row_for_every_trial_with_all_its_figures(exported: ResultsFolder) -> None:
    rows = rows_of(exported.path / FORMATS["json"].file_name)
    trials = exported.read_trials()
    keys = [(row["backend"], row["level"], row["repeat"]) for row in rows]
    assert keys == [(trial.backend, trial.level, trial.repeat) for trial in trials]
    assert len(set(keys)) == 2 * 2
    assert {tuple(row) for row in rows} == {tuple(rows[0])}, "all have the same columns"
    for row, trial in zip(rows, trials, strict=True):
        assert row["run"] == "run"
        assert row["inferences_per_s"] == trial.outcomes["ok"] / trial.window_s
        assert [row[f"{name}_requests"] for name in OUTCOMES] == list(trial.outcomes.values())
    known = percentiles_ms(samples_of(exported.read_histograms(trials[0].id).response_time))
    for field in QUANTILES:
        quantile = getattr(known, field)
        parts = {"_ms": "value_ms", "_low_ms": "low_ms", "_high_ms": "high_ms"}
        for end, part in {**parts, "_at_least": "at_least"}.items():
            wanted = getattr(quantile, part) if quantile else None
            assert rows[0][f"response_{field}{end}"] == wanted
    assert rows[0]["response_p50_ms"] == pytest.approx(1, rel=2e-3)
    assert rows[0]["service_p50_ms"] == pytest.approx(2, rel=2e-3)
    assert rows[0]["response_p99_ms"] is None
    assert rows[0]["server_ended"] is None


def test_no_field_of_a_trial_is_forgotten(exported: ResultsFolder) -> None:
    """``completed`` is per second, ``started`` is when the verdict was made."""
    (row, *_) = rows_of(exported.path / FORMATS["json"].file_name)
    columns = {re.sub("_(requests|share)$", "", name) for name in row} | set(row)
    named_otherwise = {"id": "trial", "outcomes": "ok_requests", "resources": "energy.joules"}
    named_otherwise |= {"frames": "frames.frames"}
    fields = {named_otherwise.get(name, name) for name in Trial.model_fields}
    assert fields - columns == {"completed", "started"}


def test_csv_and_parquet_hold_what_json_holds(exported: ResultsFolder) -> None:
    rows = rows_of(exported.path / FORMATS["json"].file_name)
    table = parquet.read_table(exported.path / FORMATS["parquet"].file_name)
    assert table.to_pylist() == rows
    with (exported.path / FORMATS["csv"].file_name).open(newline="") as stream:
        header, *lines = csv.reader(stream)
    assert header == list(rows[0])

    def plain(value: object) -> str:
        return (
            "" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        )

    assert lines == [[plain(value) for value in row.values()] for row in rows]
    assert rows[0]["cpu_model"] == HOSTILE


def test_parquet_has_the_same_types_whatever_was_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that tables of several runs may be put together."""
    role = RoleUse(
        cpu_cores=0.5,
        rss_peak_bytes=10**8,
        pss_peak_bytes=None,
        voluntary_switches_per_s=1.0,
        involuntary_switches_per_s=None,
        processes_peak=1,
        threads_peak=2,
    )
    more = energy(0.25, "psys").model_copy(
        update={"roles": {"server": role}, "unmeasurable": {"gpus": "no NVML"}}
    )
    bare = finished(tmp_path / "bare", (10.0,), trial={"server_rss_bytes": None})
    full = finished(tmp_path / "full", (10.0,), slo_ms=5.0, trial={"resources": more})
    one, other = (parquet.read_schema(written(monkeypatch, f, "parquet")) for f in (bare, full))
    kinds, more_kinds = (dict(zip(s.names, s.types, strict=True)) for s in (one, other))
    assert kinds == {name: more_kinds[name] for name in kinds}
    (row, *_) = rows_of(written(monkeypatch, full, "json"))
    assert row["roles.server.cpu_cores"] == 0.5
    assert row["roles.server.pss_peak_bytes"] is None
    assert row["roles.generator.cpu_cores"] is None
    assert (row["energy.joules_per_inference"], row["energy.rails"]) == (0.25, "psys")
    assert row["unmeasurable"] == "gpus: no NVML"


def test_what_a_machine_has_of_its_own_has_columns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = GpuUse(
        utilisation=None,
        engine_active=None,
        sm_active=None,
        memory_bytes={"mean": 1.0, "lowest": 0.0, "highest": 2.0},
        sm_clock_hz=None,
        memory_clock_hz=None,
        temperature_celsius=None,
        throttled=("heat", "power"),
    )
    use = ResourceUse(window_s=2.0, samples=2, gpus={"gpu0": gpu})
    folder = finished(tmp_path / "run", (10.0,), trial={"resources": use})
    (row, *_) = rows_of(written(monkeypatch, folder, "json"))
    assert row["gpus.gpu0.memory_bytes.highest"] == 2.0
    assert row["gpus.gpu0.throttled"] == "heat; power"
    assert "gpus.gpu0.utilisation.mean" not in row


def intervals(path: Path) -> Iterator[object]:
    reader = HistogramLogReader(str(path), new_histogram())
    while (found := reader.get_next_interval_histogram()) is not None:
        yield found
    reader.close()


def test_the_log_is_read_by_hdrhistogram_s_own_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = new_run(tmp_path / "run")
    early, late = (0, made.MS, "ok"), (made.SECOND, 3 * made.MS, "timeout")
    measure(folder, "triton", [early, early, late], length_s=1.5, after_s=10)
    measure(folder, "remote:http://h, 1", [early], after_s=0, id="remote")
    found = list(intervals(written(monkeypatch, folder, "hdrlog")))
    told = [
        (
            histogram.get_tag(),
            histogram.get_start_time_stamp() / 1e3 - START_S,
            histogram.get_end_time_stamp() / 1e3 - START_S,
            histogram.get_total_count(),
            round(histogram.get_max_value() / made.MS),
        )
        for histogram in found
    ]
    assert told == [
        ("remote:http://h_1/4/response/ok", 0.0, 1.0, 1, 1),
        ("remote:http://h_1/4/service/ok", 0.0, 1.0, 1, 1),
        ("triton/4/response/ok", 10.0, 11.0, 2, 1),
        ("triton/4/service/ok", 10.0, 11.0, 2, 1),
        ("triton/4/response/timeout", 11.0, 11.5, 1, 3),
        ("triton/4/service/timeout", 11.0, 11.5, 1, 3),
    ]


def test_nothing_is_lost_in_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = small(tmp_path)
    logged = new_histogram()
    for histogram in intervals(written(monkeypatch, folder, "hdrlog")):
        if "/response/" in histogram.get_tag():
            logged.add(histogram)
    kept = merge(
        encoded
        for trial in folder.read_trials()
        for second in folder.read_histograms(trial.id).response_time
        for encoded in second.values()
    )
    assert logged.get_total_count() == 2 * 20
    assert logged.encode() == kept.encode()


def test_tensorboard_finds_an_entry_for_every_trial(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = small(tmp_path)
    rows = {str(row["trial"]): row for row in rows_of(written(monkeypatch, folder, "json"))}
    out = written(monkeypatch, folder, "tensorboard")
    assert {path.name for path in out.iterdir()} == set(rows)
    for name, row in rows.items():
        events = EventAccumulator(str(out / name))
        events.Reload()
        scalars = {tag: events.Scalars(tag)[0] for tag in events.Tags()["scalars"]}
        assert {tag: scalar.value for tag, scalar in scalars.items()} == pytest.approx(
            {metric: row[metric] for metric in METRICS if row[metric] is not None}
        )
        assert {scalar.wall_time for scalar in scalars.values()} == {row["window_started_unix_s"]}
        parts = events.summary_metadata["_hparams_/session_start_info"].plugin_data
        data = plugin_data_pb2.HParamsPluginData.FromString(parts.content)
        hparams = data.session_start_info.hparams
        assert hparams["backend"].string_value == row["backend"]
        assert hparams["level"].number_value == row["level"]
        assert "variant" not in hparams


def test_a_folder_of_somebody_s_own_is_never_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, out = small(tmp_path), tmp_path / "mine"
    arguments = (folder.path, "--to", "tensorboard", "--out", out)
    out.mkdir()
    (out / "thesis.txt").write_text("three years of work")
    for force in ((), ("--force",)):
        assert export(monkeypatch, *arguments, *force) == UsageError.exit_code
    assert (out / "thesis.txt").read_text() == "three years of work"
    (out / "thesis.txt").unlink()
    for _ in range(2):
        assert export(monkeypatch, *arguments, "--force") == 0
    assert len(list(out.iterdir())) == 2
    assert not list(tmp_path.glob(".*"))


def test_a_folder_cannot_be_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = (small(tmp_path).path, "--to", "tensorboard", "--out", "-")
    assert export(monkeypatch, *arguments) == UsageError.exit_code
    assert "Name one with --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "module"), [("parquet", "pyarrow"), ("tensorboard", "tensorboardX.writer")]
)
def test_without_its_library_the_extra_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
    module: str,
) -> None:
    folder = small(tmp_path)
    monkeypatch.setitem(sys.modules, module, None)
    assert export(monkeypatch, folder.path, "--to", name) == MachineError.exit_code
    said = capsys.readouterr().err
    assert f"{name} needs {module.partition('.')[0]}" in said
    assert "infersweep[export]" in said
    assert said.count("\n") == 1
    assert not (folder.path / FORMATS[name].file_name).exists()


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_without_a_trial_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    folder = new_run(tmp_path / "run")
    assert export(monkeypatch, folder.path, "--to", name) == ResultsError.exit_code
    assert sorted(path.name for path in folder.path.iterdir()) == ["manifest.json"]


@pytest.mark.parametrize("name", [name for name in FORMATS if name != "openmetrics"])
def test_damaged_histograms_are_told_and_nothing_is_left(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    name: str,
) -> None:
    folder = small(tmp_path)
    kept = next((folder.path / "histograms").iterdir())
    kept.write_text(kept.read_text().replace("HISTF", "JUNKF"))
    assert export(monkeypatch, folder.path, "--to", name) == ResultsError.exit_code
    assert "are damaged" in capsys.readouterr().err
    assert not (folder.path / FORMATS[name].file_name).exists()
    assert not list(folder.path.glob(".*"))


def test_only_folders_are_folders() -> None:
    assert [name for name, one in FORMATS.items() if isinstance(one, FolderFormat)] == [
        "tensorboard"
    ]
