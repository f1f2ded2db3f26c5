"""Finished runs in a data folder of Prometheus, so that Grafana shows them like live ones.

promtool makes TSDB blocks of a run's text. The same run may be loaded again, also with more trials
than before: its blocks overlap, and Prometheus drops a sample that equals another at its time.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loadtest.folder import ResultsFolder
from loadtest.observing.finished import FinishedRun, read_run
from loadtest.observing.openmetrics import write_text
from serving.errors import MachineError, ResultsError, UsageError

_PROGRAM = "promtool"
_KNOWN = "infersweep-runs.json"


@dataclass(frozen=True)
class LoadedRuns:
    """From the first window's start to the last one's end, and the values of the label ``run``."""

    start_unix_s: float
    end_unix_s: float
    names: tuple[str, ...]


def load_runs(
    runs: Sequence[Path], data: Path, progress: Callable[[str], None] = lambda _stage: None
) -> LoadedRuns:
    """Put the results folders ``runs`` into ``data``, made where it is missing.

    A run is known by its folder's name. Another run of the same name is refused rather than given
    a new name, which would be no folder's: Prometheus would take both for one.

    Args:
        runs: results folders; one that stands there twice is loaded once.
        data: what Prometheus gets as ``--storage.tsdb.path``; it may be running on it.
        progress: is told each stage.

    Raises:
        UsageError: there are no runs, or two of one name.
        ResultsError: a folder is none, is damaged or too old.
        MachineError: promtool is missing or failed.
    """
    found = [read_run(ResultsFolder(path)) for path in runs]
    if not found:
        raise UsageError("there is no run to load", hint="Name at least one results folder.")
    known = _with_all(_read_known(data), found)
    program = _promtool()
    data.mkdir(parents=True, exist_ok=True)
    # Before the blocks: a load that breaks off may leave some.
    _write_known(data, known)
    for run in {run.name: run for run in found}.values():
        progress(f"loading {run.name}")
        _load(program, run, data)
    return LoadedRuns(
        min(run.start_unix_s for run in found),
        max(run.end_unix_s for run in found),
        tuple(dict.fromkeys(run.name for run in found)),
    )


def _promtool() -> str:
    found = shutil.which(_PROGRAM)
    if found is None:
        raise MachineError(
            f"{_PROGRAM} is not on PATH, which makes Prometheus's blocks",
            hint="Install Prometheus (Debian and Ubuntu: apt install prometheus); "
            "`infersweep export RESULTS --to openmetrics` needs none.",
        )
    return found


def _with_all(known: Mapping[str, str], runs: Sequence[FinishedRun]) -> dict[str, str]:
    """When each run was created, by its name."""
    together = dict(known)
    for run in runs:
        if together.setdefault(run.name, run.created) != run.created:
            raise UsageError(
                f"two runs are called {run.name!r}: one of {together[run.name]}, one of "
                f"{run.created}",
                hint="Rename one's folder, or load it into another data folder.",
            )
    return together


def _read_known(data: Path) -> dict[str, str]:
    path = data / _KNOWN
    try:
        known = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except ValueError:
        known = None
    if not isinstance(known, dict):
        raise ResultsError(f"{path} is damaged", hint="Load the runs into another data folder.")
    return {str(name): str(created) for name, created in known.items()}


def _write_known(data: Path, known: Mapping[str, str]) -> None:
    part = data / f".{_KNOWN}.part"
    part.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
    part.replace(data / _KNOWN)


def _load(program: str, run: FinishedRun, data: Path) -> None:
    """All blocks of the run or none."""
    # Beside the blocks, where there must be room anyway; promtool cannot read a pipe.
    with tempfile.TemporaryDirectory(prefix=".infersweep-", dir=data) as name:
        text, blocks = Path(name) / "run.txt", Path(name) / "blocks"
        with text.open("wb") as stream:
            write_text(run, stream)
        done = subprocess.run(
            [program, "tsdb", "create-blocks-from", "openmetrics", "--quiet", text, blocks],
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip().splitlines() or ["it said nothing"]
            raise MachineError(
                f"{_PROGRAM} could not load {run.name!r}: {said[-1]}",
                hint=f"See that {data} has room.",
            )
        for meta in blocks.glob("*/meta.json"):
            _mark_as_late(meta)
            meta.parent.rename(data / meta.parent.name)


def _mark_as_late(meta: Path) -> None:
    """Say of a block what it is: samples that came out of order.

    Else Prometheus takes its end for the least valid time of what it has watched itself and not
    yet made a block of, and drops what is older (``open`` in its tsdb/db.go).
    """
    told = json.loads(meta.read_text(encoding="utf-8"))
    told["compaction"]["hints"] = [*told["compaction"].get("hints", ()), "from-out-of-order"]
    meta.write_text(json.dumps(told, indent=2), encoding="utf-8")
