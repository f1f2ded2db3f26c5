"""The generator's own ceiling: what it reaches with a model's requests on the null server.

A run near that ceiling measures the generator. Ceilings are kept per machine, CPUs, model and wire,
so that a second run starts at once.
"""

from __future__ import annotations

import json
import tempfile
from hashlib import sha256
from pathlib import Path

from loadtest.engine.build import library_path
from loadtest.payload import write_payloads
from loadtest.prepare import payloads_from
from loadtest.results import Settings
from loadtest.runner import Fleet, generate
from loadtest.trial import TrialSpec
from serving.deployment import Placement, running
from serving.errors import InfersweepError
from serving.host import cpu_model
from serving.models.repository import Model
from serving.models.weights import cache_folder
from serving.parity import reference_for

LEVELS = (1.0, 8.0, 32.0)
WINDOW_S = 1.0
_BACKEND = "null"


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
    try:
        found = json.loads(_file().read_text())[key]
    except (OSError, KeyError, ValueError):
        return None
    return float(found)


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
    """Requests per second at each of ``LEVELS`` users; the best of them is kept.

    Raises:
        InfersweepError: the null server or the generator failed.
    """
    rates = {}
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
    keep_ceiling(ceiling_key(model, settings, fleet), max(rates.values()))
    return rates


def keep_ceiling(key: str, rate_rps: float) -> None:
    """Write it beside the others; the file is whole or as it was."""
    try:
        known = json.loads(_file().read_text())
    except (OSError, ValueError):
        known = {}
    _file().parent.mkdir(parents=True, exist_ok=True)
    part = _file().with_suffix(".part")
    part.write_text(json.dumps({**known, key: rate_rps}, indent=2))
    part.replace(_file())


def ceiling_for(
    model: Model, settings: Settings, fleet: Fleet, usable_cpus: int
) -> tuple[float | None, str]:
    """The ceiling, measured now unless it is known, and a line about it."""
    if unknown := why_not(settings, fleet):
        return None, f"the generator's ceiling is not known: {unknown}"
    found = known_ceiling(ceiling_key(model, settings, fleet))
    if found is None:
        try:
            found = max(measure_ceilings(model, settings, fleet, usable_cpus).values())
        except InfersweepError as error:
            return None, f"the generator's ceiling could not be measured: {error.what}"
    return found, f"the generator's ceiling is {found:,.0f} requests/s (null server)"
