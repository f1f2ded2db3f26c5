"""One window on a server that is ready: measured, judged, on disk."""

from __future__ import annotations

from loadtest.resources.sampler import Sampler
from loadtest.results import Settings, Trial
from loadtest.rig import Ready, Rig
from loadtest.runner import generate
from loadtest.trials import PlannedTrial
from serving.errors import LoadError, ParityError


def require_right(ready: Ready | None, name: str) -> Ready:
    """What ``Rig.ready`` gave. Raises ParityError where the answers of arm ``name`` are wrong."""
    if ready is None:
        raise ParityError(
            f"{name} answers wrongly, so it is not loaded",
            hint="`infersweep check` shows the differences.",
        )
    return ready


def measure_window(
    rig: Rig, ready: Ready, sampler: Sampler, planned: PlannedTrial, settings: Settings
) -> Trial:
    """``settings`` are of this window alone.

    Raises:
        LoadError: the generator failed, or the server did not live to the window's end.
    """
    spec = rig.spec(ready, (planned.level,), planned.id, settings)
    (output,) = generate(spec, rig.fleet, rig.log(planned.id))
    trial = rig.keep(planned, output, ready, sampler, settings)
    if ready.server.ended is not None:
        raise LoadError(
            f"{ready.arm.name} {ready.server.ended}", hint=f"Its log lies in {rig.folder.logs}."
        )
    return trial
