"""The generator's own ceiling and floor: what its requests of a model reach on the null server.

A run near the ceiling, in requests per second, measures the generator. The floor is the median time
that one user's request takes there: what client, loopback and the least HTTP cost anyway. It is no
mean, which would be that of the machine's interruptions. Both are kept per machine, CPUs, model and
wire, so that a second run starts at once.
"""

from __future__ import annotations

import json
import tempfile
from hashlib import sha256
from pathlib import Path

from loadtest.engine.build import library_path
from loadtest.histogram import merge
from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.results import Settings
from loadtest.runner import Fleet, generate
from loadtest.trial import LevelOutput, TrialSpec
from serving.deployment import Placement, running
from serving.errors import InfersweepError, LoadError
from serving.host import cpu_model
from serving.models.repository import Model
from serving.models.weights import cache_folder
from serving.parity import reference_for

LEVELS = (1.0, 8.0, 32.0)
WINDOW_S = 1.0
_BACKEND = "null"
_FLOOR = "-floor-ms"
"""Behind a ceiling's key. Its entry stands beside the ceiling, where older versions overlook it."""


def ceiling_key(model: Model, settings: Settings, fleet: Fleet) -> str:
    """What a ceiling depends on, as one short text."""
    parts = [
        cpu_model(),
        str(sorted(settings.server_cpus)),
        str(fleet),
        model.sha256(),
        f"{settings.encoding} {settings.batch_size} {settings.engine}",
        library_path().name,
    ]
    return sha256("\n".join(parts).encode()).hexdigest()[:16]


def _file() -> Path:
    return cache_folder() / "ceilings.json"


def known_ceiling(key: str) -> float | None:
    """A ceiling measured before, in requests per second."""
    return _known(key)


def known_floor(key: str) -> float | None:
    """A floor measured with the ceiling of this key, in milliseconds."""
    return _known(key + _FLOOR)


def _known(key: str) -> float | None:
    try:
        found = json.loads(_file().read_text())[key]
    except (OSError, KeyError, ValueError):
        return None
    # Older versions kept 0 where nothing had been answered.
    return float(found) or None


def why_not(settings: Settings, fleet: Fleet) -> str:
    """Why the ceiling cannot be measured here; empty when it can."""
    if fleet.remote_workers:
        return "its workers are on other hosts: run `infersweep calibrate` there"
    if settings.encoding == "grpc" or settings.shared_memory:
        return "the null server does not speak so"
    return ""


def measure_ceilings(
    model: Model, settings: Settings, fleet: Fleet, usable_cpus: int
) -> dict[float, float]:
    """Requests per second at each of ``LEVELS`` users; the best is kept, as is the floor.

    Raises:
        InfersweepError: the null server or the generator failed.
    """
    rates = {}
    floor_ms = None
    with tempfile.TemporaryDirectory(prefix="infersweep-") as name:
        folder = Path(name)
        payloads = payloads_from(
            model, reference_for(model), encoding=settings.encoding, rows=settings.batch_size
        )
        write_payloads(folder / "payloads", payloads)
        placement = Placement(settings.server_cpus, usable_cpus)
        with running(
            _BACKEND, model, placement, repository=folder / "repository", logs=folder
        ) as server:
            spec = TrialSpec(
                url=server.url,
                model=model.name,
                payloads=folder / "payloads",
                engine=settings.engine,
                levels=LEVELS,
                duration_s=WINDOW_S,
                timeout_s=settings.timeout_s,
                seed=settings.seed,
                values_every=0,
                server_pid=None,
                output=folder / "ceiling.jsonl",
            )
            for output in generate(spec, fleet, folder / "generator.log"):
                rates[output.level] = output.outcomes["ok"] / output.window_s
                if output.level == LEVELS[0]:
                    floor_ms = _median_service_ms(output)
    best_rps = max(rates.values())
    if not best_rps or floor_ms is None:
        raise LoadError(
            "the null server gave no right answer", hint="Do its answers have the model's shapes?"
        )
    key = ceiling_key(model, settings, fleet)
    keep(**{key: best_rps, key + _FLOOR: floor_ms})
    return rates


def _median_service_ms(output: LevelOutput) -> float | None:
    """Of right answers; ``None`` where there were none."""
    right = merge(window["ok"] for window in output.service_time if "ok" in window)
    return right.get_value_at_percentile(50) / 1e6 if right.total_count else None


def keep(**values: float) -> None:
    """Write them beside the others; the file is whole or as it was."""
    try:
        known = json.loads(_file().read_text())
    except (OSError, ValueError):
        known = {}
    _file().parent.mkdir(parents=True, exist_ok=True)
    part = _file().with_suffix(".part")
    part.write_text(json.dumps({**known, **values}, indent=2))
    part.replace(_file())


def ceiling_for(
    model: Model, settings: Settings, fleet: Fleet, usable_cpus: int
) -> tuple[float | None, str]:
    """The ceiling, measured now unless it and the floor are known, and a line about it."""
    if unknown := why_not(settings, fleet):
        return None, f"the generator's ceiling is not known: {unknown}"
    key = ceiling_key(model, settings, fleet)
    found = known_ceiling(key)
    if found is None or known_floor(key) is None:
        try:
            found = max(measure_ceilings(model, settings, fleet, usable_cpus).values())
        except InfersweepError as error:
            return None, f"the generator's ceiling could not be measured: {error.what}"
    return found, f"the generator's ceiling is {found:,.0f} requests/s (null server)"


def floor_for(model: Model, settings: Settings, fleet: Fleet) -> float | None:
    """The floor that ``ceiling_for`` measured, in milliseconds; ``None`` where it could not."""
    if why_not(settings, fleet):
        return None
    return known_floor(ceiling_key(model, settings, fleet))
