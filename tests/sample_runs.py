"""Made-up results folders of known requests, written as a sweep writes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from loadtest.folder import ResultsFolder
from loadtest.observing.finished import read_run
from loadtest.observing.openmetrics import lines
from loadtest.recorder import Recorder
from loadtest.results import OUTCOMES, Histograms
from tests import sample_trials as made

START_S = made.STARTED_UNIX_S
Ended = tuple[int, int, str]
"""When a request was due in the window, ns; how long it took, ns; its outcome."""


def measure(
    folder: ResultsFolder,
    backend: str,
    ended: Sequence[Ended],
    *,
    after_s: float = 0.0,
    length_s: float = 2.0,
    **changes: object,
) -> None:
    """Append a trial of these requests, whose window began ``after_s`` after START_S."""
    recorder = Recorder(0, round(length_s * made.SECOND))
    for outcome in OUTCOMES:
        own = [(due, took) for due, took, how in ended if how == outcome]
        if own:
            recorder.add(made.requests(*map(list, zip(*own, strict=True)), outcome=outcome))
    measured = recorder.finish()
    known = {
        "window_started_unix_s": START_S + after_s,
        "window_s": length_s,
        "planned": len(ended),
        "outcomes": measured.outcomes,
        "completed": measured.completed,
    }
    repeat = len(folder.read_trials()) + 1
    trial, _ = made.trial(backend, 4, repeat, [made.MS], **{**known, **changes})
    kept = ("response_time", "service_time", "lateness", "first_byte")
    folder.append_trial(
        trial, Histograms(trial=trial.id, **{name: getattr(measured, name) for name in kept})
    )


def new_run(path: Path, **changes: object) -> ResultsFolder:
    folder = ResultsFolder(path)
    folder.write_manifest(made.manifest(**changes))
    return folder


def small_run(path: Path, **changes: object) -> ResultsFolder:
    """One window of two seconds: one answer of 1 ms in the first, two of 3 ms in the second."""
    folder = new_run(path, **changes)
    first, second = (0, made.MS, "ok"), (made.SECOND, 3 * made.MS, "ok")
    measure(folder, "triton", [first, second, second])
    return folder


def text_of(folder: ResultsFolder) -> str:
    return "".join(lines(read_run(folder)))
