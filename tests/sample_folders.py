"""Made-up results folders of finished runs, whose figures are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from loadtest.folder import ResultsFolder
from loadtest.resources.record import Energy, ResourceUse
from loadtest.results import Manifest
from loadtest.trials import PlannedTrial
from tests import sample_trials as made

WINDOW_S = 2.0
FEW_NS = (made.MS, 3 * made.MS)


def finished(
    path: Path,
    rates: Sequence[float],
    *,
    backends: Sequence[str] = ("triton",),
    levels: Sequence[float] = (4,),
    latencies_ns: Sequence[Sequence[int]] | None = None,
    trial: Mapping[str, object] | None = None,
    manifest: Mapping[str, object] | None = None,
    machine: Mapping[str, object] | None = None,
    **settings: object,
) -> ResultsFolder:
    """Every backend at every level has one repeat per rate, in right answers per second.

    ``latencies_ns`` are those of each repeat; ``trial``, ``manifest`` and ``machine`` change
    fields of these records.
    """
    folder = ResultsFolder(path)
    folder.write_manifest(
        _manifest(
            {"backends": backends, "levels": levels, "repeats": len(rates), **settings},
            manifest or {},
            machine or {},
        )
    )
    for label in backends:
        folder.write_backend(made.record(label))
        for level in levels:
            for repeat, rate in enumerate(rates, 1):
                own = latencies_ns[repeat - 1] if latencies_ns else FEW_NS
                after_s = 10.0 * len(folder.read_trials())
                name = PlannedTrial(label, level, repeat).id
                known = {
                    "id": name,
                    "outcomes": made.outcomes(ok=round(rate * WINDOW_S)),
                    "window_started_unix_s": made.STARTED_UNIX_S + after_s,
                    "server_rss_bytes": 10**8,
                }
                changes = {**known, **(trial or {})}
                one, histograms = made.trial(label, level, repeat, own, **changes)
                folder.append_trial(one, histograms.model_copy(update={"trial": name}))
    return folder


def _manifest(
    settings: Mapping[str, object], changes: Mapping[str, object], machine: Mapping[str, object]
) -> Manifest:
    found = made.manifest(**settings)
    on = found.machine.model_copy(update=dict(machine))
    return found.model_copy(update={"machine": on, **changes})


def energy(joules_per_inference: float, rail: str) -> ResourceUse:
    """What a window used, read from one rail."""
    return ResourceUse(
        window_s=WINDOW_S,
        samples=2,
        energy=Energy(
            rails=(rail,),
            missing={},
            joules=1.0,
            joules_per_inference=joules_per_inference,
            idle_watts=None,
            net_joules_per_inference=None,
        ),
    )
