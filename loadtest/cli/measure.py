"""What the measuring commands share: from settings to a results folder, a table and a page."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console

from loadtest.calibration import ceiling_for
from loadtest.cli.display import Display, LiveDisplay, SearchDisplay
from loadtest.cli.options import interrupt_on_sigterm
from loadtest.contest import Contest
from loadtest.engine.build import build
from loadtest.folder import ResultsFolder
from loadtest.manifest import describe_run
from loadtest.observing.publishing import Publishing, published
from loadtest.report import write_report
from loadtest.report.terminal import summary_table
from loadtest.results import Manifest, Settings, Summary
from loadtest.rig import Rig, RigListener
from loadtest.runner import Fleet
from loadtest.summary import write_summary
from loadtest.sweep import Sweep
from serving.deployment import fetch_needed
from serving.errors import INTERRUPTED_EXIT_CODE, LoadError, ResultsError
from serving.host import cpu_budget
from serving.models.repository import Model
from serving.models.zoo.build import ensure_built
from serving.readiness import OPEN, Access


@dataclass(frozen=True)
class Run:
    """One invocation: what is measured, from where, and where the results go."""

    model: Model
    settings: Settings
    fleet: Fleet
    usable_cpus: int
    out: Path | None
    access: Access = OPEN
    metrics_port: int | None = None


def local_run(model: Model, settings: Settings, out: Path | None, metrics_port: int | None) -> Run:
    """With one generator process, on servers that are started or reached from here."""
    fleet = Fleet(cpus=settings.client_cpus)
    return Run(model, settings, fleet, cpu_budget().usable, out, metrics_port=metrics_port)


Work = Callable[[Console, Run, ResultsFolder, float | None], None]
"""Measures what is missing in the folder; the last is the generator's ceiling in requests/s."""


def measure(console: Console, run: Run, work: Work | None = None) -> int:
    """Measure what is not measured yet, and show it. Returns the exit status.

    ``work`` is that of a sweep or of searches, where none is given.

    Raises:
        InfersweepError: nothing could be measured, or nothing that was is VALID.
    """
    with interrupt_on_sigterm():
        return _measure(console, run, work or (_searches if run.settings.objectives else _sweep))


def _measure(console: Console, run: Run, work: Work) -> int:
    folder, ceiling_rps = prepare(console, run)
    interrupted = False
    try:
        work(console, run, folder, ceiling_rps)
    except KeyboardInterrupt:
        interrupted = True
    summary = conclude(console, folder)
    if interrupted:
        console.print(f"Interrupted. Resume with: {folder.resume_command()}", highlight=False)
        return INTERRUPTED_EXIT_CODE
    _require_an_answer(summary, folder.report)
    return 0


def conclude(console: Console, folder: ResultsFolder) -> Summary:
    """Derive summary and page from what is on disk, and show the answer."""
    summary = write_summary(folder)
    page = write_report(folder)
    console.print(summary_table(summary))
    if len(summary.backends) > 1 or summary.searches:
        console.print(summary.ranking.sentence, style="bold", highlight=False, markup=False)
    console.print(f"Report: {page}", highlight=False)
    return summary


def _sweep(console: Console, run: Run, folder: ResultsFolder, ceiling_rps: float | None) -> None:
    done = len(folder.read_trials())
    with (
        LiveDisplay(console, run.settings, done=done) as display,
        published_run(folder, run, display),
    ):
        Sweep(rig_of(run, folder, display, ceiling_rps), display).run()


def _searches(console: Console, run: Run, folder: ResultsFolder, ceiling_rps: float | None) -> None:
    with SearchDisplay(console) as display, published_run(folder, run, display):
        rig = rig_of(run, folder, display, ceiling_rps)
        Contest(rig, [rig.arm(label) for label in run.settings.backends], display).run()


def rig_of(
    run: Run, folder: ResultsFolder, listener: RigListener, ceiling_rps: float | None
) -> Rig:
    return Rig(
        run.settings,
        run.model,
        run.usable_cpus,
        folder,
        listener,
        run.fleet,
        ceiling_rps,
        run.access,
    )


def prepare(console: Console, run: Run) -> tuple[ResultsFolder, float | None]:
    """What every measuring command does first; returns its folder and the generator's ceiling.

    Raises:
        InfersweepError: something that is needed cannot be had, or the folder is another run's.
    """
    settings = run.settings
    if settings.engine == "native":
        build()
    ensure_built(run.model, console.print)
    fetch_needed(settings.backends, console.print)
    folder = ResultsFolder(run.out or default_folder(run.model.name))
    manifest = describe_run(run.model, run.settings, _command(run.access))
    open_folder(folder, manifest, console)
    # Everything this process does from here on happens on the client's side.
    os.sched_setaffinity(0, settings.client_cpus)
    ceiling_rps, told = ceiling_for(run.model, settings, run.fleet, run.usable_cpus)
    console.print(told, highlight=False)
    return folder, ceiling_rps


def published_run(
    folder: ResultsFolder, run: Run, display: Display
) -> AbstractContextManager[str | None]:
    """The run's counts, for Prometheus, while it lasts."""
    cpus = run.settings.client_cpus
    return published(folder, Publishing(cpus, run.metrics_port, display.stage, display.warning))


def _require_an_answer(summary: Summary, page: Path) -> None:
    """A search that ended without a rate has given one, too."""
    if any(point.verdict == "VALID" for b in summary.backends for point in b.points):
        return
    if any(search.complete for search in summary.searches):
        return
    excluded = [b.excluded for b in summary.backends if b.excluded]
    reasons = [r for b in summary.backends for point in b.points for r in point.reasons]
    first = next(iter([*reasons, *excluded]), "nothing was measured")
    raise LoadError(f"no point of this run is VALID: {first}", hint=f"The rest is in {page}.")


def default_folder(model: str) -> Path:
    """Where the results of a run go that names no place."""
    return Path("results") / f"{datetime.now():%Y%m%d-%H%M%S}-{model}"


def open_folder(folder: ResultsFolder, manifest: Manifest, console: Console) -> None:
    """Write the manifest, or find the one of the run that is resumed to be the same.

    Raises:
        ResultsError: the folder holds something else.
    """
    if not folder.exists:
        if folder.path.exists() and any(folder.path.iterdir()):
            raise ResultsError(
                f"{folder.path} holds files that are no results of infersweep",
                hint="Choose another --out.",
            )
        folder.write_manifest(manifest)
        return
    known = folder.read_manifest()
    unlike = known.model_sha256 != manifest.model_sha256 or known.link != manifest.link
    if known.settings != manifest.settings or unlike:
        raise ResultsError(
            f"{folder.path} was measured with other settings, another model file or another link",
            hint=f"Repeat its own command ({known.command}) or choose another --out.",
        )
    console.print(f"Resuming {folder.path}", highlight=False)


def _command(access: Access) -> str:
    """The command line, without the values of headers, which may be secrets."""
    words = []
    for word in sys.argv[1:]:
        secret = next((v for v in access.headers.values() if v and v in word), None)
        words.append(word.replace(secret, "...") if secret else word)
    return shlex.join(["infersweep", *words])
